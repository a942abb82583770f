"""One of the kills of `python -m tests.hardening.kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardening.kills import hurt

pytestmark = pytest.mark.live


def test_a_killed_part_leaves_nothing_and_no_run_that_is_finished(tmp_path: Path) -> None:
    found = hurt(tmp_path, 1, number=2)
    assert found["kills"] == 1
