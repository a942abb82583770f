"""Effects of the core on time: each timer fires once, as an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from neaptide.clusters.broker.replication.interface import effects, events


class Timers:
    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Callable[[object], None]) -> None:
        self._loop = loop
        self._submit = submit
        self._handles: dict[events.Timer, asyncio.TimerHandle] = {}

    @property
    def performers(self) -> Mapping[type, Callable[[Any], None]]:
        return {effects.SetTimer: self._set, effects.CancelTimer: self._cancel}

    def _set(self, effect: effects.SetTimer) -> None:
        self._cancel(effects.CancelTimer(effect.timer))
        self._handles[effect.timer] = self._loop.call_later(
            effect.delay_ms / 1000, self._fire, effect.timer
        )

    def _fire(self, timer: events.Timer) -> None:
        self._handles.pop(timer, None)
        self._submit(events.TimerFired(timer))

    def _cancel(self, effect: effects.CancelTimer) -> None:
        handle = self._handles.pop(effect.timer, None)
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
