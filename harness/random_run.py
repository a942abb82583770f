"""A randomised run: a workload under load, and a schedule of faults drawn from the seed."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.cluster import ClusterSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.clusters.kafka.versions import Mode
from neaptide.clusters.own.model import Managed
from neaptide.clusters.producer import MAX_IN_FLIGHT_IDEMPOTENT, ProducerOptions, in_flight_of
from neaptide.harness.account import Account
from neaptide.harness.ending import Ending, end, heal_all
from neaptide.harness.faults import Faults
from neaptide.harness.guard import guarded
from neaptide.harness.random_load import (
    RandomLoad,
    brokers_settings,
    check_load,
    topics_of,
)
from neaptide.harness.random_nemesis import RandomNemesis
from neaptide.harness.run_record import Finished, new_run, record
from neaptide.harness.stage import Stage
from neaptide.harness.systems import System, check_system_on, generation_of
from neaptide.nemesis.drawn.faults import FAULTS
from neaptide.nemesis.drawn.schedule import (
    Schedule,
    draw_schedule,
    faults_of,
    load_schedule,
    parse_faults,
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
# A fault that is aimed at fetch rounds holds for as long as a session lasts, and no follower leaves
# the ISR for that.
_AIMED_SETTINGS: Final = {"replica.lag.time.max.ms": "5000"}


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
    saved: Path | None = None  # whose schedule is played again, in place of one that is drawn
    client: str = DEFAULT
    producers: int = 1
    consumers: int = 1
    topics: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)  # of the workload, all of them
    ids: tuple[int, ...] = ()  # of the brokers, where the system has its own; else 0, 1, …

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return self.ids or tuple(range(self.brokers))

    @property
    def nemesis(self) -> str:
        """What `--nemesis` says."""
        return str(self.saved) if self.saved is not None else ",".join(self.faults) or "none"

    @property
    def kills_clients(self) -> bool:
        return "client" in (self.faults or faults_of(self.schedule()))

    def schedule(self) -> Schedule:
        brokers = self.broker_ids
        if self.saved is not None:
            return load_schedule(self.saved, brokers, self.partitions)
        return draw_schedule(self.seed, self.faults, brokers, self.time_s, self.partitions)

    def repeat(self) -> str:
        options = [
            self.system.options,
            f"--nemesis {shlex.quote(self.nemesis)}",
            f"--time {self.time_s:g}",
            f"--rate {self.rate:g}",
            f"--acks {self.acks}",
            *(["--idempotence"] if self.idempotence else []),
            *([] if self.ids else [f"--brokers {self.brokers}"]),
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


def parse_nemesis(text: str, system: System) -> tuple[tuple[str, ...], Path | None]:
    """The names of faults; or the run, or the file, whose schedule is to be played again."""
    saved = Path(text)
    if text.endswith(".json") or saved.is_dir():
        return (), saved
    return parse_faults(text, lambda name: _refusal(name, system) is None), None


def check_acks(acks: str) -> str:
    if acks not in ("0", "1", "all"):
        raise UsageError(f"--acks {acks!r} must be 0, 1 or all.")
    return acks


def check(asked: RandomRun) -> RandomRun:
    """Raises UsageError where something that is asked for does not go together."""
    return check_load(check_faults(check_idempotence(check_own(asked))))


def check_own(asked: RandomRun) -> RandomRun:
    """Raises UsageError where a system of the user's own cannot do what is asked for."""
    check_system_on(asked.system, asked.place)
    if asked.system.used is not None and asked.settings:
        raise UsageError(
            f"--set: {asked.system.used.file} names a cluster that is just used; its brokers have"
            " the settings that they have."
        )
    return asked


def _refusal(fault: str, system: System) -> str | None:
    """Why a system cannot do it, and what to take; None: it can."""
    if system.used is not None and not FAULTS[fault].of_clients:
        return (
            f"{system.used.file} names a cluster that is just used: nothing of it is killed, and"
            " none of its links leads through the gate; name [[brokers]] to start"
        )
    if isinstance(system.own, Managed) and fault == "pause":
        node = next((node for node in system.own.nodes if not node.can_pause), None)
        if node is not None:
            return (
                f"{system.own.file}: node {node.id} has a kill command, so that no signal pauses"
                " it; give it pause and resume"
            )
    if FAULTS[fault].kafka_only and generation_of(system) is not None:
        return f"{system} does not serve it; take an Apache Kafka, as kafka:3.9.1"
    if fault == "power-off" and (system.release or "").endswith(f"-{Mode.COMBINED.value}"):
        return (
            f"in {system} every broker is a controller, and the cluster's metadata would be cut,"
            " too, which Kafka flushes; take one with controllers of their own"
        )
    return None


def check_faults(asked: RandomRun) -> RandomRun:
    """Raises UsageError where the system cannot do a fault, or there are too few brokers for it."""
    for name in asked.faults or faults_of(asked.schedule()):
        needs = FAULTS[name].needs
        if asked.brokers < needs:
            raise UsageError(
                f"--nemesis {name} needs --brokers {needs} or more, not {asked.brokers};"
                " or leave it out."
            )
        refusal = _refusal(name, asked.system)
        if refusal is not None:
            raise UsageError(f"--nemesis {name}: {refusal}, or leave it out.")
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
    brokers = asked.broker_ids
    schedule = asked.schedule()
    names = asked.faults or faults_of(schedule)
    run = replace(
        new_run(asked.workload, asked.system, asked.seed, "random"),
        title=f"{asked.workload} under {', '.join(names) or 'no faults'}",
        host=asked.place.name,
        schedule=[phase.to_json() for phase in schedule],
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
    first, *more = topics_of(asked, brokers)
    spec = ClusterSpec(
        brokers,
        {
            **_unsaid(
                asked.system,
                {
                    **_DEFAULT_SETTINGS,
                    **(_AIMED_SETTINGS if "rounds" in names else {}),
                    **brokers_settings(asked.workload, len(brokers)),
                },
            ),
            **asked.settings,
        },
        first,
        more=tuple(more),
    )

    async def work(directory: Path, account: Account) -> Finished:
        async with Stage(directory, asked.system, spec, asked.place, account) as stage:
            faults = Faults(stage, {broker: str(broker) for broker in brokers})
            load = RandomLoad(stage, asked)
            nemesis = RandomNemesis(stage, faults, schedule, load)
            ending = await guarded(
                _load_and_end(stage, faults, asked, nemesis, load, progress),
                directory,
                stage.find_incident,
            )
        aim = Aim(not stage.problems, "; ".join(stage.problems))
        stopped = asked_to_stop(directory) or ""
        missed, left = tuple(nemesis.missed), stage.left
        return Finished(aim, ending, (), stopped, nemesis.aimed, missed, left)

    directory, _ = await record(run, asked.system, work)
    return directory


def _unsaid(system: System, settings: Mapping[str, str]) -> dict[str, str]:
    """What the properties of the user's own brokers do not say."""
    said = system.own.said if isinstance(system.own, Managed) else frozenset()
    return {name: value for name, value in settings.items() if name not in said}


async def _load_and_end(
    stage: Stage,
    faults: Faults,
    asked: RandomRun,
    nemesis: RandomNemesis,
    load: RandomLoad,
    progress: Progress,
) -> Ending:
    await load.begin(producer_options(asked))
    await _do_faults(stage, load, nemesis, asked, progress)
    await load.stop_senders()
    progress("healing, final reads, replica logs", asked.time_s, {})
    await heal_all(stage, faults, ())
    await nemesis.settle()
    await load.finish()
    return await end(stage)


async def _do_faults(
    stage: Stage,
    load: RandomLoad,
    nemesis: RandomNemesis,
    asked: RandomRun,
    progress: Progress,
) -> None:
    """Until the time is over, or somebody asks the run to stop."""
    begun = time.monotonic()
    is_over = False

    async def tell() -> None:
        # Python 3.11 loses a cancellation that comes together with an answer: so it is asked, too.
        while not is_over:
            progress(nemesis.doing, time.monotonic() - begun, await load.counts())
            if asked_to_stop(stage.run) is not None:
                nemesis.stopping.set()
            await asyncio.sleep(_PROGRESS_S)

    telling = asyncio.create_task(tell())
    try:
        await nemesis.play(asked.time_s)
    finally:
        is_over = True
        telling.cancel()
        await asyncio.wait((telling,))
    if not telling.cancelled():
        telling.result()
