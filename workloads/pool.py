"""The clients of a workload, each in a process of its own; one that is killed is replaced.

Not thread-safe: one event loop. Numbers of processes are never used twice.

The rule: what a killed process may have done is in the history: what it had noted and recorded
nowhere is written down, a send as one of which the end is not known (`workloads.journal`). So it is
with a client whose library does not come to an end in its time: it is cut off, and the run goes on.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from neaptide.results.run import Incident
from neaptide.workloads.clients import Clients
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.journal import recover
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.roles.role import Task
from neaptide.workloads.worker import WORKERS_MAX

FIRST_NUMBER: Final = 2  # 1 is the process that reads at the end
_KINDS: Final = ("ok", "fail", "info", "polled", "busy")
_LOOK_S: Final = 0.5

Start = Callable[[int], Awaitable[Clients]]


@dataclass(slots=True)
class Member:
    """One client. `lives`: no fault kills it. `is_over`: it was cut off, and nobody follows it."""

    task: Task
    lives: bool
    clients: Clients | None = None  # None: it was killed
    is_over: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ClientPool:
    """`start`: starts a process of clients with a number. `ended`: takes one that is no more."""

    start: Start
    ended: Callable[[Clients], None]
    recorder: Recorder
    members: list[Member] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)  # who, and why
    _before: dict[str, int] = field(default_factory=dict)  # what those did that were killed
    _numbers: Any = field(default_factory=lambda: itertools.count(FIRST_NUMBER))

    async def open(self, tasks: Sequence[tuple[Task, bool]]) -> None:
        self.members = [Member(task, lives) for task, lives in tasks]
        await asyncio.gather(*(self._begin(member) for member in self.members))

    async def _begin(self, member: Member) -> None:
        number = next(self._numbers)
        if number > WORKERS_MAX:
            raise ClientsError(f"No run has more than {WORKERS_MAX} processes of clients.")
        clients = await self.start(number)
        await clients.do("begin", **asdict(member.task))
        member.clients = clients

    # --- faults ----------------------------------------------------------------------------------

    def killable(self) -> list[int]:
        """Which of its members a fault may kill now."""
        return [n for n, member in enumerate(self.members) if not member.lives and member.clients]

    async def kill_one(self, number: int) -> int | None:
        """SIGKILL; its pid, None where there is nothing to kill. Raises StoreError."""
        member = self.members[number]
        clients = None if member.lives else member.clients
        if clients is None:
            return None
        await self._end(member, clients, "the client was killed")
        return clients.process.pid

    async def _end(self, member: Member, clients: Clients, why: str) -> None:
        """SIGKILL; what it had begun has no end that is known. Raises StoreError."""
        member.clients = None
        for kind, count in member.counts.items():
            self._before[kind] = self._before.get(kind, 0) + count
        member.counts = {}
        self.ended(clients)
        await clients.kill()
        killed_ns = self.recorder.now_ns()
        for row in await asyncio.to_thread(recover, clients.run_directory, clients.number):
            self.recorder.write(**_crashed(row, killed_ns, why))

    async def replace(self, number: int) -> None:
        """A new process takes the place of one that was killed."""
        member = self.members[number]
        if member.clients is None and not member.is_over:
            await self._begin(member)

    # --- the way of a run ------------------------------------------------------------------------

    async def counts(self) -> dict[str, int]:
        await asyncio.gather(*(self._ask(member) for member in self.members if member.clients))
        totals = {kind: self._before.get(kind, 0) for kind in _KINDS}
        totals["busy"] = 0
        for member in self.members:
            for kind, count in member.counts.items():
                totals[kind] += count
        return totals

    async def _ask(self, member: Member) -> None:
        asked = member.clients
        if asked is None:
            return
        try:
            counts = await asked.do("progress")
        except ClientsError:
            if member.clients is asked:  # nobody killed it meanwhile
                raise
            return
        if member.clients is asked:
            member.counts = counts

    async def stop_senders(self, within_s: float) -> None:
        await self._stop(senders=True, within_s=within_s)

    async def finish(self, idle_within_s: float, at_most_s: float, within_s: float) -> None:
        """The others come to the end of what there is, if they can, and stop.

        They have `idle_within_s` for it, again whenever they have done something, and in all no
        more than `at_most_s`.
        """
        loop = asyncio.get_running_loop()
        begun = last = loop.time()
        before = None
        while (counts := await self.counts())["busy"]:
            if counts != before:
                before, last = counts, loop.time()
            if loop.time() > last + idle_within_s or loop.time() > begun + at_most_s:
                waited_s = loop.time() - begun
                self.problems.append(
                    f"not all clients came to the end of their work within {waited_s:.0f} s"
                )
                break
            await asyncio.sleep(_LOOK_S)
        await self._stop(senders=False, within_s=within_s)

    async def _stop(self, *, senders: bool, within_s: float) -> None:
        """Who has not stopped by then, or has sends that nobody answered, is cut off."""
        living = [(m, m.clients) for m in self.members if m.clients is not None]
        for _, clients in living:
            await clients.do("stop", senders=senders)
        answers = await asyncio.gather(*(c.do("finish", deadline_s=within_s) for _, c in living))
        for (member, clients), answer in zip(living, answers, strict=True):
            if answer["late"] or answer["left"]:
                await self._cut_off(member, clients, answer, within_s)

    async def _cut_off(
        self, member: Member, clients: Clients, answer: Mapping[str, int], within_s: float
    ) -> None:
        await clients.do("flush")  # what is recorded already stays
        late, left = f"did not stop within {within_s:g} s", f"{answer['left']} sends had no answer"
        why = f"{member.task.role} {member.task.index} {late if answer['late'] else left}"
        member.is_over = True
        self.cut_off.append(why)
        await self._end(member, clients, f"the client was cut off: {why}")

    async def flush(self) -> None:
        for member in self.members:
            if member.clients is not None:
                await member.clients.do("flush")

    def find_incident(self) -> Incident | None:
        found = (m.clients.find_incident() for m in self.members if m.clients is not None)
        return next((incident for incident in found if incident is not None), None)


def _crashed(row: Mapping[str, Any], killed_ns: int, why: str) -> dict[str, Any]:
    """A crash is the end of all that was on its way, and nobody knows which end."""
    if row["type"] != "invoke":
        return dict(row)
    return {**row, "type": "info", "completed_ns": killed_ns, "error": why}
