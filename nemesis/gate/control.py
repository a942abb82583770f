"""The commands of the harness: one line of JSON each, answered in the order in which they came.

{"id": 7, "do": "install", "rule": {"id": "r", "action": "hold", "message": "response"}}
{"id": 7, "ok": true, "result": null}    or    {"id": 7, "ok": false, "error": "…"}
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.model import Cut, Rule, Subscription, Target, from_dict
from neaptide.nemesis.gate.recorder import Recorder
from neaptide.nemesis.gate.switch import Switch
from neaptide.results.errors import StoreError

Arguments = dict[str, Any]


class Doors(Protocol):
    """The listeners."""

    async def set_target(self, name: str, target: Target, via: Target | None) -> None: ...
    async def follow_network(self, broker: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Controls:
    """What commands act upon."""

    switch: Switch
    recorder: Recorder
    doors: Doors


async def obey(controls: Controls, line: bytes) -> dict[str, Any]:
    """Do what a line says; the answer to it."""
    request_id: object = None
    try:
        request = json.loads(line)
        request_id, name = request.pop("id"), request.pop("do")
        if name not in COMMANDS:
            raise UsageError(f"{name!r} is no command: must be one of {', '.join(COMMANDS)}")
        result = await COMMANDS[name](controls, request)
    except StoreError as error:  # not the fault of whoever asked
        return {"id": request_id, "ok": False, "failed": str(error)}
    except (UsageError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"id": request_id, "ok": False, "error": str(error) or repr(error)}
    return {"id": request_id, "ok": True, "result": result}


async def _install(controls: Controls, arguments: Arguments) -> None:
    controls.switch.install(Rule.from_dict(arguments["rule"]))


async def _remove(controls: Controls, arguments: Arguments) -> None:
    controls.switch.remove(arguments["rule"])


async def _release(controls: Controls, arguments: Arguments) -> int:
    return controls.switch.release(arguments["rule"], keep=arguments["keep"])


async def _discard(controls: Controls, arguments: Arguments) -> int:
    return controls.switch.discard(arguments["rule"], keep=arguments["keep"])


async def _cut(controls: Controls, arguments: Arguments) -> None:
    controls.switch.cut(from_dict(Cut, arguments["cut"]))


async def _heal(controls: Controls, arguments: Arguments) -> None:
    raw = arguments["cut"]
    cut = None if raw is None else from_dict(Cut, raw)
    controls.switch.heal(cut, reset=arguments["reset"])


async def _slow(controls: Controls, arguments: Arguments) -> None:
    controls.switch.slow(from_dict(Cut, arguments["where"]), arguments["delay_ms"])


async def _sever(controls: Controls, arguments: Arguments) -> None:
    controls.switch.sever(arguments["broker"])
    await controls.doors.follow_network(arguments["broker"])


async def _bury(controls: Controls, arguments: Arguments) -> None:
    if arguments["in_flight"] not in ("discarded", "delivered"):
        raise UsageError("in_flight must be one of discarded, delivered")
    await controls.switch.bury(arguments["broker"], arguments["in_flight"])


async def _revive(controls: Controls, arguments: Arguments) -> None:
    controls.switch.revive(arguments["broker"])
    await controls.doors.follow_network(arguments["broker"])


async def _set_target(controls: Controls, arguments: Arguments) -> None:
    via = None if arguments["via"] is None else from_dict(Target, arguments["via"])
    target = from_dict(Target, arguments["target"])
    await controls.doors.set_target(arguments["link"], target, via)


async def _subscribe(controls: Controls, arguments: Arguments) -> None:
    controls.switch.subscribe(from_dict(Subscription, arguments["subscription"]))


async def _unsubscribe(controls: Controls, arguments: Arguments) -> None:
    controls.switch.unsubscribe(arguments["subscription"])


async def _name_topics(controls: Controls, arguments: Arguments) -> None:
    controls.switch.topic_names.update(arguments["names"])


async def _flush(controls: Controls, _: Arguments) -> dict[str, Any]:
    controls.recorder.roll()
    return {table: asdict(rows) for table, rows in controls.recorder.written.items()}


async def _state(controls: Controls, _: Arguments) -> dict[str, Any]:
    return controls.switch.state()


COMMANDS: Final[dict[str, Callable[[Controls, Arguments], Awaitable[Any]]]] = {
    "install": _install,
    "remove": _remove,
    "release": _release,
    "discard": _discard,
    "cut": _cut,
    "heal": _heal,
    "slow": _slow,
    "sever": _sever,
    "bury": _bury,
    "revive": _revive,
    "set_target": _set_target,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "name_topics": _name_topics,
    "flush": _flush,
    "state": _state,
}
