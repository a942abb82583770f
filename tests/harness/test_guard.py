"""The guard ends what cannot end well, and says what the cause was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from neaptide.harness.live.guard import guarded
from neaptide.results.run import Incident, IncidentError

DEAD = Incident("process", "The gate is dead.")


def guard(
    directory: Path, work: Coroutine[Any, Any, Any], find: Callable[[], Incident | None]
) -> object:
    return asyncio.run(guarded(work, directory, find))


async def forever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise ConnectionResetError


async def ends() -> str:
    return "the end"


def test_an_incident_ends_work_that_would_never_end(tmp_path: Path) -> None:
    with pytest.raises(IncidentError, match=r"The gate is dead\."):
        guard(tmp_path, forever(), lambda: DEAD)


def test_the_cause_is_said_also_where_its_consequence_is_seen_first(tmp_path: Path) -> None:
    looks = iter([None, DEAD])
    with pytest.raises(IncidentError, match=r"The gate is dead\.") as raised:
        guard(tmp_path, fails(), lambda: next(looks))
    assert isinstance(raised.value.__cause__, ConnectionResetError)


def test_what_failed_without_an_incident_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError):
        guard(tmp_path, fails(), lambda: None)


def test_what_nothing_happens_to_has_its_result(tmp_path: Path) -> None:
    assert guard(tmp_path, ends(), lambda: None) == "the end"
