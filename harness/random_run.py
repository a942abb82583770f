"""A randomised run: a workload under load, and a schedule of faults drawn from the seed."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, assert_never

from neaptide.clusters.cluster import ClusterSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.clusters.producer import MAX_IN_FLIGHT_IDEMPOTENT, ProducerOptions, in_flight_of
from neaptide.harness.account import Account
from neaptide.harness.ending import Ending, end, heal_all
from neaptide.harness.faults import Faults
from neaptide.harness.guard import guarded
from neaptide.harness.random_load import (
    RandomLoad,
    begin_load,
    brokers_settings,
    check_load,
    clients_to_kill,
    topics_of,
)
from neaptide.harness.run_record import Finished, new_run, record
from neaptide.harness.stage import Stage
from neaptide.harness.systems import System, generation_of
from neaptide.nemesis.random_schedule import (
    ClientFault,
    CutFault,
    Fault,
    KillFault,
    PauseFault,
    RestartFault,
    ScheduledFault,
    draw_schedule,
)
from neaptide.results.run import Aim
from neaptide.results.stop import asked_to_stop
from neaptide.workloads.catalog import WORKLOADS
from neaptide.workloads.libraries.table import DEFAULT

Progress = Callable[[str, float, Mapping[str, int]], None]
_PROGRESS_S: Final = 0.5
# So that a fault of seconds is a fault, and not one long hiccup.
_DEFAULT_SETTINGS: Final = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "100",
    "replica.socket.timeout.ms": "3000",
    "zookeeper.session.timeout.ms": "2000",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True)
class RandomRun:
    """What is asked for. `settings` are brokers' settings, over the defaults of random runs."""

    workload: str
    system: System
    faults: tuple[str, ...]
    time_s: float
    rate: float
    seed: int
    acks: str = "all"
    brokers: int = 3
    partitions: int = 4
    settings: Mapping[str, str] = field(default_factory=dict)
    place: Place = LOCAL
    idempotence: bool = False
    min_acked: int = 1
    client: str = DEFAULT
    producers: int = 1
    consumers: int = 1
    topics: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)  # of the workload, all of them

    def repeat(self) -> str:
        options = [
            self.system.options,
            f"--nemesis {','.join(self.faults) or 'none'}",
            f"--time {self.time_s:g}",
            f"--rate {self.rate:g}",
            f"--acks {self.acks}",
            *(["--idempotence"] if self.idempotence else []),
            f"--brokers {self.brokers}",
            f"--partitions {self.partitions}",
            *([f"--topics {self.topics}"] if self.topics != 1 else []),
            *([f"--client {self.client}"] if self.client != DEFAULT else []),
            f"--producers {self.producers}",
            f"--consumers {self.consumers}",
            *(
                f"--option {shlex.quote(f'{name}={value}')}"
                for name, value in self.options.items()
                if value != WORKLOADS[self.workload].options[name].default
            ),
            *([f"--min-acked {self.min_acked}"] if self.min_acked != 1 else []),
            *(
                f"--set {shlex.quote(f'{name}={value}')}"
                for name, value in sorted(self.settings.items())
            ),
            f"--seed {self.seed}",
            *self.place.options,
        ]
        return f"neaptide run {self.workload} {' '.join(options)}"


def check_acks(acks: str) -> str:
    if acks not in ("0", "1", "all"):
        raise UsageError(f"--acks {acks!r} must be 0, 1 or all.")
    return acks


def check(asked: RandomRun) -> RandomRun:
    """Raises UsageError where something that is asked for does not go together."""
    return check_load(check_faults(check_idempotence(asked)))


def check_faults(asked: RandomRun) -> RandomRun:
    """Raises UsageError where a fault needs more brokers than there are."""
    if "cut" in asked.faults and asked.brokers < 2:
        raise UsageError(
            "--nemesis cut is between two brokers: it needs --brokers 2 or more, or leave it out."
        )
    return asked


def check_idempotence(asked: RandomRun) -> RandomRun:
    """Raises UsageError where there can be no idempotent producer."""
    if not asked.idempotence:
        return asked
    if asked.acks != "all":
        raise UsageError(f"--idempotence needs --acks all, not {asked.acks}.")
    rules = generation_of(asked.system)
    if rules is not None and rules.idempotence is None:
        raise UsageError(
            f"--idempotence: {asked.system} knows no idempotent producers, which came with 0.11."
        )
    return asked


def producer_options(asked: RandomRun) -> ProducerOptions:
    """As many in flight as the leader knows again: five, but on our 0.11 one."""
    if not (asked.idempotence or WORKLOADS[asked.workload].idempotence):
        return ProducerOptions()
    rules = generation_of(asked.system)
    return ProducerOptions(True, in_flight_of(rules) if rules else MAX_IN_FLIGHT_IDEMPOTENT)


async def run_random(asked: RandomRun, progress: Progress) -> Path:
    """Runs it; returns the run directory. `progress` gets a line, the seconds so far, counts."""
    brokers = tuple(range(asked.brokers))
    schedule = draw_schedule(
        asked.seed, asked.faults, brokers, asked.time_s, len(clients_to_kill(asked))
    )
    run = replace(
        new_run(asked.workload, asked.system, asked.seed, "random"),
        title=f"{asked.workload} under {', '.join(asked.faults) or 'no faults'}",
        host=asked.place.name,
        schedule=[scheduled.to_json() for scheduled in schedule],
        brokers={str(broker): broker for broker in brokers},
        min_acked=asked.min_acked,
        repeat=asked.repeat(),
        clients={
            "client": asked.client,
            "acks": asked.acks,
            "rate": asked.rate,
            "idempotence": asked.idempotence or WORKLOADS[asked.workload].idempotence,
            "subscribe": WORKLOADS[asked.workload].group is not None,
            "producers": asked.producers,
            "consumers": asked.consumers,
            "options": dict(asked.options),
        },
    )
    spec = ClusterSpec(
        brokers,
        {
            **_DEFAULT_SETTINGS,
            **brokers_settings(asked.workload, len(brokers)),
            **asked.settings,
        },
        *topics_of(asked, brokers),
    )

    async def work(directory: Path, account: Account) -> Finished:
        async with Stage(directory, asked.system, spec, asked.place, account) as stage:
            faults = Faults(stage, {broker: str(broker) for broker in brokers})
            ending = await guarded(
                _load_and_end(stage, faults, asked, schedule, progress),
                directory,
                stage.find_incident,
            )
        aim = Aim(not stage.problems, "; ".join(stage.problems))
        return Finished(aim, ending, stopped_early=asked_to_stop(directory) or "")

    directory, _ = await record(run, asked.system, work)
    return directory


async def _load_and_end(
    stage: Stage,
    faults: Faults,
    asked: RandomRun,
    schedule: tuple[ScheduledFault, ...],
    progress: Progress,
) -> Ending:
    load = await begin_load(stage, asked, producer_options(asked))
    await _do_faults(stage, faults, load, asked, schedule, progress)
    await load.stop_senders()
    progress("healing, final reads, replica logs", asked.time_s, {})
    await heal_all(stage, faults, ())
    await load.finish()
    return await end(stage)


async def _do_faults(
    stage: Stage,
    faults: Faults,
    load: RandomLoad,
    asked: RandomRun,
    schedule: tuple[ScheduledFault, ...],
    progress: Progress,
) -> None:
    """Until the time is over, or somebody asks the run to stop."""
    begun = time.monotonic()
    doing = "load"
    stopping = asyncio.Event()

    async def tell() -> None:
        while True:
            progress(doing, time.monotonic() - begun, await load.counts())
            if asked_to_stop(stage.run) is not None:
                stopping.set()
            await asyncio.sleep(_PROGRESS_S)

    telling = asyncio.create_task(tell())
    try:
        for scheduled in schedule:
            await _until_s(begun + scheduled.at_s, stopping)
            if stopping.is_set():
                break
            doing = scheduled.fault.kind
            await _inject(faults, load, scheduled.fault)
            await _until_s(begun + scheduled.at_s + scheduled.lasts_s, stopping)
            await _undo(faults, load, scheduled.fault)
            doing = "load"
        await _until_s(begun + asked.time_s, stopping)
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling


async def _until_s(moment: float, stopping: asyncio.Event) -> None:
    """The schedule of a random run is in seconds: this is the one place that waits for time.

    Somebody may ask the run to stop before (`neaptide.results.stop`).
    """
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), max(0.0, moment - time.monotonic()))


async def _inject(faults: Faults, load: RandomLoad, fault: Fault) -> None:
    match fault:
        case KillFault():
            await faults.kill(fault.broker, fault.in_flight)
        case PauseFault():
            await faults.pause(fault.broker)
        case RestartFault():
            await faults.stop(fault.broker)
        case CutFault():
            await faults.cut(fault.source, fault.destination, fault.purpose, both=fault.both)
        case ClientFault():
            await load.kill_one(fault.client)
        case _:
            assert_never(fault)


async def _undo(faults: Faults, load: RandomLoad, fault: Fault) -> None:
    match fault:
        case KillFault() | RestartFault():
            await faults.restart(fault.broker)
        case PauseFault():
            await faults.resume(fault.broker)
        case CutFault():
            await faults.heal(fault.source, fault.destination)
        case ClientFault():
            await load.replace_one(fault.client)
        case _:
            assert_never(fault)
