"""One of the kills of `python -m tests.hardening.kills`; `make proof` kills 300 times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardening.kills import KILLS, hurt
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.timeout(3_600)]
SHARE = 10  # of the long form: what a proof that was interrupted repeats at most


@pytest.mark.parametrize(
    ("kills", "number"),
    proof_but([(1, 2), *((SHARE, 1_000 + n) for n in range(0, KILLS, SHARE))], (1, 2)),
)
def test_a_killed_part_leaves_nothing_and_no_run_that_is_finished(
    tmp_path: Path, kills: int, number: int
) -> None:
    found = hurt(tmp_path, kills, number)
    assert found["kills"] == kills
