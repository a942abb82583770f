"""The load of a random run fails: what comes of it, and that nothing else is printed."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neaptide.harness.play.random_run import do_faults
from neaptide.workloads.errors import ClientsError

GONE = "The clients have ended."


def fails(tmp_path: Path, unheeded: list[Any], *, nemesis_fails: bool) -> None:
    """Raises what the run ended with; `unheeded`: what the event loop had to report itself."""

    async def counts() -> dict[str, int]:
        asking.set()
        if nemesis_fails:  # and this one fails when it is no longer wanted
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        raise ClientsError(GONE)

    async def play(time_s: float) -> None:
        if nemesis_fails:
            await asking.wait()
            raise RuntimeError("a fault cannot be put right")
        await nemesis.stopping.wait()

    asking = asyncio.Event()
    nemesis: Any = SimpleNamespace(stopping=asyncio.Event(), doing="", play=play)
    stage: Any = SimpleNamespace(run=tmp_path)
    load: Any = SimpleNamespace(counts=counts)
    asked: Any = SimpleNamespace(time_s=5.0)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unheeded.append(context))
        await do_faults(stage, load, nemesis, asked, lambda *_: None)

    asyncio.run(run())


def test_clients_that_end_end_the_run(tmp_path: Path) -> None:
    unheeded: list[Any] = []
    with pytest.raises(ClientsError, match=GONE):
        fails(tmp_path, unheeded, nemesis_fails=False)
    assert unheeded == []


def test_clients_that_end_while_a_fault_fails_leave_no_traceback(tmp_path: Path) -> None:
    unheeded: list[Any] = []
    with suppress(RuntimeError):
        fails(tmp_path, unheeded, nemesis_fails=True)
        pytest.fail("the fault has not failed")
    gc.collect()  # a task whose end nobody has asked for says so when it goes
    assert unheeded == []
