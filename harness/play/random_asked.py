"""What is asked for of a random run, and whether that goes together: before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import MissingPartError, UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.clusters.kafka.versions import Mode, parse_release
from neaptide.clusters.own.model import Managed
from neaptide.clusters.settings import problem_of
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.needs import check_need
from neaptide.harness.scenarios.saved_schedule import schedule_of
from neaptide.harness.scenarios.systems import (
    System,
    check_system_on,
    generation_of,
    has_consumer_protocol,
    has_groups,
    has_transactions,
    has_voters,
    secret_settings,
)
from neaptide.nemesis.acts import Schedule
from neaptide.nemesis.drawn.faults import ALL, FAULTS, faults_of
from neaptide.nemesis.drawn.schedule import draw_schedule, parse_faults
from neaptide.nemesis.scenario import Scenario
from neaptide.results.run import named_brokers
from neaptide.workloads.catalog import (
    COMPACTION,
    MEMBERSHIP,
    SHARE_GROUPS,
    TRANSACTIONS,
    Workload,
    find_workload,
)
from neaptide.workloads.group_options import NO_RESETS
from neaptide.workloads.libraries.table import DEFAULT, LIBRARIES
from neaptide.workloads.raw_connection import CoordinatorKind
from neaptide.workloads.resets import KINDS
from neaptide.workloads.roles.groups import RESET
from neaptide.workloads.roles.role import transactional_id
from neaptide.workloads.roles.table import find_role

# Where one more record at the end of each partition disturbs nothing.
_OF_USED: Final = ("append", "txn", "bank", "groups", "rebalance")
_OF_OUR_OWN_START: Final = ("clock", "disk")
_SINCE: Final[Mapping[str, tuple[int, ...]]] = {
    TRANSACTIONS: (0, 11),
    MEMBERSHIP: (0, 9),
    COMPACTION: (0, 8),
    SHARE_GROUPS: (4, 2),  # general since then (KIP-932)
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
    def fault_names(self) -> tuple[str, ...]:
        """What it may do: what was asked for, or what the saved schedule has."""
        return self.faults or faults_of(self.schedule())

    @property
    def coordinated(self) -> tuple[str, CoordinatorKind] | None:
        """Whose coordinator is a target: of the workload's group, or of a transactional id."""
        workload = find_workload(self.workload)
        if self.system.used is None and secret_settings(self.system):
            return None  # who it is would be asked without them
        if workload.group is not None:
            return str(self.options.get("group", workload.group)), "group"
        if workload.transactional_id is not None:
            return transactional_id(workload.transactional_id, self.seed, 0), "transaction"
        return None

    def schedule(self) -> Schedule:
        names = tuple(named_brokers(self.broker_ids))
        if self.saved is not None:
            return schedule_of(_fitting(saved_schedule.load(self.saved), names, self.partitions))
        return draw_schedule(
            self.seed,
            self.faults,
            names,
            self.time_s,
            self.partitions,
            coordinated=self.coordinated is not None,
            voters=has_voters(self.system),
        )

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
                if value != find_workload(self.workload).options[name].default
            ),
            *([f"--min-acked {self.min_acked}"] if self.min_acked != 1 else []),
            *(
                f"--set {shlex.quote(f'{name}={value}')}"
                for name, value in sorted(self.settings.items())
            ),
            f"--seed {self.seed}",
            *self.place.options,
        ]
        return f"neaptide run {shlex.quote(self.workload)} {' '.join(options)}"


def _fitting(saved: Scenario, names: tuple[str, ...], partitions: int) -> Scenario:
    """Raises UsageError for a schedule of more brokers or partitions than there are."""
    if not set(saved.brokers) <= set(names):
        raise UsageError(f"{saved.name}: is for {len(saved.brokers)} brokers; raise --brokers.")
    if len(saved.topic.assignment) > partitions:
        count = len(saved.topic.assignment)
        raise UsageError(f"{saved.name}: is for {count} partitions; raise --partitions.")
    return saved


# --- checks --------------------------------------------------------------------------------------


def parse_nemesis(
    text: str, system: System, place: Place = LOCAL, report: Callable[[str], None] = lambda _: None
) -> tuple[tuple[str, ...], Path | None]:
    """The names of faults; or the run, or the file, whose schedule is to be played again.

    `report` is given a sentence for each that `all` leaves out here.
    """
    saved = Path(text)
    if text.endswith((saved_schedule.SUFFIX, ".json")) or saved.is_dir():
        return (), saved

    def can(name: str) -> bool:
        refusal = _refusal(name, system) or _lacking(name, place)
        if refusal is not None:
            report(f"--nemesis {ALL} leaves out {name}: {refusal}")
        return refusal is None

    return parse_faults(text, can), None


def check_acks(acks: str) -> str:
    if acks not in ("0", "1", "all"):
        raise UsageError(f"--acks {acks!r} must be 0, 1 or all.")
    return acks


RATE_OF_USED: Final = 100.0


def rate_for(system: System, usual: float, given: float | None = None) -> float:
    """Records a second. A cluster that is just used is somebody's own: it gets few, unless he asks
    for more."""
    if given is not None:
        return given
    return usual if system.used is None else min(usual, RATE_OF_USED)


def check(asked: RandomRun) -> RandomRun:
    """Raises UsageError where something that is asked for does not go together."""
    return check_load(check_faults(check_idempotence(check_settings(check_own(asked)))))


def check_settings(asked: RandomRun) -> RandomRun:
    """Raises UsageError for a setting that is misspelt."""
    problem = problem_of(asked.settings, has_plugins=asked.system.release is not None)
    if problem is not None:
        raise UsageError(f"--set: {problem}{'' if problem.endswith('?') else '.'}")
    return asked


def check_own(asked: RandomRun) -> RandomRun:
    """Raises UsageError where a system of the user's own cannot do what is asked for."""
    check_system_on(asked.system, asked.place)
    if asked.place.name == "simulation":
        raise UsageError(
            "A workload needs brokers that run, and the simulation has none: search it with"
            " `neaptide explore`, or choose another --host."
        )
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
    if isinstance(system.own, Managed):
        return _refusal_of_own(fault, system.own)
    if fault == "power-off" and (system.release or "").endswith(f"-{Mode.COMBINED.value}"):
        return (
            f"in {system} every broker is a controller, and the cluster's metadata would be cut,"
            " too, which Kafka flushes; take one with controllers of their own"
        )
    return None


def _refusal_of_own(fault: str, own: Managed) -> str | None:
    if fault == "members" and own.client:
        return (
            f"{own.file}: members are changed through the listener of clients, by a client that"
            " does not read [client]"
        )
    if fault in _OF_OUR_OWN_START:
        return f"{own.file}: its brokers are started by commands of their own, not prepared for it"
    node = next((node for node in own.nodes if not node.can_pause), None)
    if fault == "pause" and node is not None:
        return (
            f"{own.file}: node {node.id} has a kill command, so that no signal pauses it; give it"
            " pause and resume"
        )
    return None


def _lacking(fault: str, place: Place) -> str | None:
    """Why this machine, or that host, cannot do it; None: it can."""
    means = FAULTS[fault].means
    try:
        if means is not None:
            check_need(means, fault, place)
    except (UsageError, MissingPartError) as error:
        return str(error)
    return None


def check_faults(asked: RandomRun) -> RandomRun:
    """Raises UsageError where the system or the host cannot do a fault, or there are too few
    brokers for it; MissingPartError where this machine lacks something for it."""
    for name in asked.fault_names:
        needs = FAULTS[name].needs
        if asked.brokers < needs:
            raise UsageError(
                f"--nemesis {name} needs --brokers {needs} or more, not {asked.brokers};"
                " or leave it out."
            )
        refusal = _refusal(name, asked.system)
        if refusal is not None:
            raise UsageError(f"--nemesis {name}: {refusal}, or leave it out.")
        means = FAULTS[name].means
        if means is not None:
            check_need(means, f"--nemesis {name}", asked.place)
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
            f"--idempotence: {asked.system} has no idempotent producers, which came with 0.11."
        )
    return asked


def check_load(asked: RandomRun) -> RandomRun:
    """Raises UsageError where a workload, a client library and a system do not go together."""
    workload = find_workload(asked.workload)
    if asked.client not in LIBRARIES:
        raise UsageError(
            f"There is no client {asked.client!r}; it must be one of {', '.join(LIBRARIES)}."
        )
    used = asked.system.used
    own = asked.system.own
    if isinstance(own, Managed) and own.client and workload.name not in _OF_USED:
        raise UsageError(
            f"The workload {workload.name} has clients that do not read [client] of {own.file}:"
            f" take one of {', '.join(_OF_USED)}."
        )
    if used is not None and workload.name not in _OF_USED:
        raise UsageError(
            f"The workload {workload.name} is for brokers that are started: on a cluster that is"
            f" just used, as {used.file} names one, take one of {', '.join(_OF_USED)}."
        )
    if own is not None and own.client and asked.client != DEFAULT:
        raise UsageError(
            f"--client {asked.client}: the settings of [client] in {own.file} are librdkafka's;"
            f" choose --client {DEFAULT}."
        )
    _check_roles(workload)
    for what in sorted(workload.needs):
        _check_served(workload.name, what, asked.system)
    _check_protocol(asked)
    _check_resets(asked.options)
    _check_library(asked, workload)
    if workload.idempotence and asked.acks != "all":
        raise UsageError(f"The workload {workload.name} needs --acks all, not {asked.acks}.")
    if workload.named and asked.topics != 1:
        raise UsageError(f"The workload {workload.name} has topics of its own: leave out --topics.")
    return asked


def _check_roles(workload: Workload) -> None:
    for clients in workload.clients:
        try:
            find_role(clients.role)
        except (LookupError, TypeError) as error:
            raise UsageError(f"The workload {workload.name} cannot be run: {error}") from None


def _check_served(workload: str, what: str, system: System) -> None:
    if (
        (what == MEMBERSHIP and has_groups(system))
        or (what == TRANSACTIONS and has_transactions(system))
        or (what == COMPACTION and system.release is None)
    ):
        return
    if system.release is None:
        raise UsageError(f"The workload {workload} needs {what}, which {system} does not serve.")
    since = _SINCE[what]
    if parse_release(system.release).version < since:
        raise UsageError(
            f"The workload {workload} needs {what}, which Apache Kafka has from"
            f" {'.'.join(map(str, since))} on, not {system}."
        )


def _check_protocol(asked: RandomRun) -> None:
    if asked.options.get("protocol") != "consumer":
        return
    if not has_consumer_protocol(asked.system):
        raise UsageError(
            "--option protocol=consumer needs neaptide:4.0, or Apache Kafka 4.0 or later, not"
            f" {asked.system}."
        )


def _check_resets(options: Mapping[str, Any]) -> None:
    """A kind of reset, and members that reset, go together."""
    churn, kind = str(options.get("churn", "none")), str(options.get("resets", NO_RESETS))
    if RESET in churn.split("+") and kind == NO_RESETS:
        raise UsageError(
            f"--option churn={churn} needs a kind of reset, as --option resets={KINDS[0]}."
        )
    if RESET not in churn.split("+") and kind != NO_RESETS:
        with_reset = RESET if churn == "none" else f"{churn}+{RESET}"
        raise UsageError(
            f"--option resets={kind} needs members that reset: --option churn={with_reset}."
        )


def _check_library(asked: RandomRun, workload: Workload) -> None:
    if asked.client == DEFAULT:
        return
    library = LIBRARIES[asked.client]()
    needed = set()
    if TRANSACTIONS in workload.needs:
        needed.add("transactions")
    if workload.group is not None:
        needed.add("groups")
    if SHARE_GROUPS in workload.needs:
        needed.add("share groups")
    if asked.options.get("assignor") == "cooperative":
        needed.add("cooperative")
    if asked.options.get("protocol") == "consumer":
        needed.add("consumer protocol")
    lacking = sorted(needed - library.can)
    if lacking:
        raise UsageError(
            f"--client {asked.client} cannot do the workload {workload.name}: it has no"
            f" {lacking[0]} here; choose --client {DEFAULT}."
        )
    problem = library.problem(asked.workload, asked.partitions, asked.topics, asked.acks)
    if problem is not None:
        raise UsageError(f"--client {asked.client} {problem}.")
    release = asked.system.release
    if release is not None and parse_release(release).version < library.since:
        raise UsageError(
            f"--client {asked.client} needs Apache Kafka {'.'.join(map(str, library.since))} or"
            f" later, not {asked.system}."
        )
