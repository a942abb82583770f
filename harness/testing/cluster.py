"""A cluster under the control of a test: an application talks to it, the test breaks it.

A plain object for plain test functions; what it does runs on an event loop of its own thread. Not
what a run is made of (`neaptide.harness.live.stage`), and not how one is judged.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import Producer

from neaptide.clusters.cluster import ClusterSpec, TopicSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.settings import problem_of
from neaptide.harness.live.account import Account
from neaptide.harness.live.ending import end, heal_all
from neaptide.harness.live.faults import Faults
from neaptide.harness.live.guard import guarded
from neaptide.harness.live.observed import StageObserved
from neaptide.harness.live.stage import Stage
from neaptide.harness.play.random_run import AIMED_SETTINGS, SHORT_TIMES
from neaptide.harness.play.run_record import Finished, new_run, record
from neaptide.harness.scenarios.systems import (
    DEFAULT_SYSTEM,
    System,
    client_settings,
    has_groups,
    keeps_headers,
    secret_settings,
)
from neaptide.harness.testing.consumed import Notebook, RecordedConsumer
from neaptide.harness.testing.findings import NeaptideFailure, WaitFailure
from neaptide.harness.testing.loop import Loop
from neaptide.harness.testing.recorded import (
    RECORDER,
    Data,
    History,
    RecordedProducer,
    Send,
    acks_text,
)
from neaptide.nemesis.gate.errors import GateError
from neaptide.nemesis.gate.model import COORDINATION, Endpoint, Rule
from neaptide.results.report import REPORT_FILE
from neaptide.results.run import Aim, IncidentError, Run, named_brokers
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.recorder import TABLE, Recorder, writer_label

T = TypeVar("T")
_BROKERS_MAX: Final = 9
_WITHIN_S: Final = 60.0
_SETTINGS: Final = {**SHORT_TIMES, **AIMED_SETTINGS}
_OF_GROUPS: Final = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SHORTENED: Final = {name: value for name, value in _SETTINGS.items() if name.endswith(".ms")}
# librdkafka reports each connection that is refused, also when the cluster is gone with its test.
_QUIET: Final = {"log_level": 2}


@dataclass(frozen=True, slots=True)
class ClusterAsked:
    """What a test asks for. `topics`: partitions by name; every broker has a replica of each.

    `idempotence`: the application's producers are idempotent, so that a record that is there twice
    is an anomaly.
    """

    name: str
    system: System
    seed: int
    brokers: int = 3
    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 1})
    settings: Mapping[str, str] = field(default_factory=dict)
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    idempotence: bool = False
    min_acked: int = 1
    place: Place = LOCAL

    def spec(self) -> ClusterSpec:
        """The leaders of partitions are spread; the first partition is led by A."""
        ids = tuple(range(self.brokers))
        first, *more = (
            TopicSpec(
                topic,
                {p: (*ids[p % len(ids) :], *ids[: p % len(ids)]) for p in range(partitions)},
                dict(self.topic_settings),
            )
            for topic, partitions in self.topics.items()
        )
        settings = {**_SETTINGS, **self._of_groups(), **self.settings}
        security = self.system.security
        return ClusterSpec(ids, settings, first, more=tuple(more), security=security)

    def _of_groups(self) -> Mapping[str, str]:
        """So that a group of a test does not wait for others, nor for replicas that cannot be."""
        if self.system.release is None:
            return {}
        replicas = {"offsets.topic.replication.factor": str(min(3, self.brokers))}
        return {**_OF_GROUPS, **replicas}

    def record(self) -> Run:
        run = new_run(self.name, self.system, self.seed, "random")
        return replace(
            run,
            title=self.name,
            host=self.place.name,
            brokers=named_brokers(range(self.brokers)),
            min_acked=self.min_acked,
            clients={"client": "application", "idempotence": self.idempotence, "subscribe": False},
        )


def check_asked(asked: ClusterAsked) -> ClusterAsked:
    """Raises UsageError."""
    if not 1 <= asked.brokers <= _BROKERS_MAX:
        raise UsageError(f"brokers={asked.brokers} must be 1 to {_BROKERS_MAX}.")
    if not asked.topics or any(partitions < 1 for partitions in asked.topics.values()):
        raise UsageError("topics must be a table of names and partitions, as {'orders': 3}.")
    is_kafka = asked.system.release is not None
    for what in ("settings", "topic_settings"):
        problem = problem_of(getattr(asked, what), has_plugins=is_kafka)
        if problem is not None:
            raise UsageError(f"{what}: {problem}{'' if problem.endswith('?') else '.'}")
    return asked


class LiveCluster:
    """Brokers are called A, B, C … in the order of their ids.

    Each method returns when what it asks for is done. All of them raise NeaptideFailure when the
    cluster has ended by itself.
    """

    def __init__(self, loop: Loop, asked: ClusterAsked) -> None:
        self._loop = loop
        self._asked = asked
        self._ids = named_brokers(range(asked.brokers))
        self._names = {number: name for name, number in self._ids.items()}
        self._rules: list[str] = []
        self._rule_numbers = itertools.count(1)
        self._stage: Stage
        self._faults: Faults
        self._history: History
        self._notes: Notebook
        self._ready = asyncio.Event()
        self._end = asyncio.Event()
        self._is_over = False
        self.waited_in_vain = False
        self._running: asyncio.Task[tuple[Path, Run]]
        loop.call(self._begin())

    # --- beginning and ending --------------------------------------------------------------------

    async def _begin(self) -> None:
        self._running = asyncio.create_task(
            record(self._asked.record(), self._asked.system, self._work)
        )
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait((self._running, ready), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # nobody waits for it any more
            await self._cancel()
            raise
        finally:
            ready.cancel()
        if self._running.done():
            # Raises what no cluster could start with.
            raise self._ended(*self._running.result())

    async def _work(self, directory: Path, account: Account) -> Finished:
        asked = self._asked
        async with Stage(directory, asked.system, asked.spec(), asked.place, account) as stage:
            stage.names = self._names
            recorder = Recorder(directory, RECORDER, stage.origin_ns)
            marks = keeps_headers(asked.system, {**asked.settings, **asked.topic_settings})
            self._stage, self._history = stage, History(recorder, marks=marks)
            self._history.partitions = asked.topics
            self._notes = Notebook(
                self._history.write,
                recorder.now_ns,
                recorder.new_operation,
                lambda: self._history.client().completed("ok"),
                asked.topics,
            )
            self._faults = Faults(stage)
            try:
                await stage.start_clients(ProducerOptions())
                await stage.watch_rounds()
                await guarded(self._level(), directory, stage.find_incident)
                self._ready.set()
                await guarded(self._end.wait(), directory, stage.find_incident)
            finally:
                written = self._history.close()
                account.wrote(TABLE, writer_label(RECORDER), written)
            await guarded(
                heal_all(stage, self._faults, tuple(self._rules)), directory, stage.find_incident
            )
            ending = await guarded(end(stage), directory, stage.find_incident)
        return Finished(Aim(not stage.problems, "; ".join(stage.problems)), ending)

    async def _level(self) -> None:
        observed = StageObserved(self._stage)
        await self._stage.until(observed.level, _WITHIN_S, "every follower fetches from its leader")

    def _ended(self, directory: Path, run: Run) -> NeaptideFailure:
        why = run.aim.why if run.aim is not None else ""
        return self._failed(why or run.status, directory)

    def _failed(self, why: str, directory: Path) -> NeaptideFailure:
        return NeaptideFailure(
            f"neaptide: the cluster {self._asked.name} on {self._asked.system} has ended:"
            f" {why.rstrip('.')}; logs are in {directory}",
            directory,
            unknown=True,
        )

    def finish(self) -> Path:
        """Heals, does the final reads, reads the replicas' logs, and ends. Returns the run."""
        self._is_over = True
        directory, _ = self._loop.call(self._finish())
        return directory

    async def _finish(self) -> tuple[Path, Run]:
        self._end.set()
        return await self._running

    def drop(self) -> None:
        """Ends the cluster without final reads. Idempotent."""
        if not self._is_over:
            self._is_over = True
            self._loop.call(self._cancel())

    async def _cancel(self) -> None:
        """Returns when all that the cluster had started has ended."""
        self._running.cancel()
        await asyncio.wait((self._running,))

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def has_sends(self) -> bool:
        """Whether there is anything to judge."""
        return hasattr(self, "_history") and self._history.began > 0

    # --- clients ---------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`. All connections go through the gate, which can cut them."""
        return ",".join(self._stage.client_address(broker) for broker in self._ids.values())

    @property
    def client_settings(self) -> dict[str, str]:
        """librdkafka's settings: `bootstrap.servers`, what the cluster was asked to let clients
        come in by, and what an old Kafka needs besides."""
        system = self._asked.system
        of_system = {**client_settings(system), **secret_settings(system)}
        return {"bootstrap.servers": self.bootstrap, **of_system}

    def producer(self, settings: Mapping[str, Any] | None = None) -> RecordedProducer:
        """A `confluent_kafka.Producer` whose sends are judged. `settings`: its configuration."""
        given = {**self.client_settings, **_QUIET, **(settings or {})}
        acks = given.get("acks", given.get("request.required.acks", "all"))
        return self.recorded(Producer(given), acks)

    def recorded(self, producer: Producer, acks: str | int = "all") -> RecordedProducer:
        """The same for a producer that is there already; `acks` is what it was configured with."""
        return RecordedProducer(producer, self._history, acks_text(acks))

    def consumer(
        self, settings: Mapping[str, Any] | None = None, delivery: str = "at-least-once"
    ) -> RecordedConsumer:
        """A `confluent_kafka.Consumer` whose polls and commits are judged; call its `handled` for
        each record once you have done your work with it. `delivery`: what your group promises,
        at-least-once or at-most-once. Raises UsageError."""
        if not has_groups(self._asked.system):
            raise UsageError(
                f"{self._asked.system} has no groups of consumers: test with another system, as"
                f" --neaptide-system {DEFAULT_SYSTEM}."
            )
        mine = {"group.id": f"neaptide-{self._asked.name}", "auto.offset.reset": "earliest"}
        given = {**self.client_settings, **_QUIET, **mine, **(settings or {})}
        return RecordedConsumer(given, self._notes, delivery)

    def send(self, topic: str, value: Data, key: Data = None, acks: str | int = "all") -> Send:
        """For another client library: call this before a record is sent, and end it after.

        Give the record the `headers` of what this returns, or send each value once.
        """
        return self._history.begin(self._history.client(), topic, value, key, acks_text(acks))

    def deleted_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Your application has deleted records on purpose (DeleteRecords): those below this offset
        are not lost. What retention or compaction of a topic removes need not be said."""
        process = self._notes.new_process()
        self._notes.note(process, "delete-records", topic, partition, offset=before_offset)

    # --- faults ----------------------------------------------------------------------------------

    def kill(self, broker: str) -> None:
        """SIGKILL. What was written is on disk when the broker is started again."""
        self._do(self._faults.kill("discarded", self._id(broker)))

    def power_off(self, broker: str) -> None:
        """SIGKILL, and what was not flushed to disk is gone."""
        self._do(self._faults.power_off({}, self._id(broker)))

    def stop(self, broker: str) -> None:
        """A clean shutdown."""
        self._do(self._faults.stop(self._id(broker)))

    def restart(self, broker: str) -> None:
        """Starts a broker that is down."""
        self._do(self._faults.restart(self._id(broker)))

    def pause(self, broker: str) -> None:
        self._do(self._faults.pause(self._id(broker)))

    def resume(self, broker: str) -> None:
        self._do(self._faults.resume(self._id(broker)))

    def cut(self, source: str, destination: str, *, both: bool = True) -> None:
        """Cuts a link. An end is a broker, "client" or "coordination"."""
        ends = self._end_of(source), self._end_of(destination)
        self._do(self._faults.cut(*ends, None, both=both))

    def heal(self) -> None:
        """Undoes every cut."""
        self._do(self._faults.heal())

    def hold(
        self,
        source: str,
        destination: str,
        *,
        response: bool = True,
        api: str = "fetch",
        where: str = "",
    ) -> str:
        """Holds replication messages from now on; returns the rule, for `release` or `discard`.

        `where` as in scenarios, as "high_watermark >= 2". A response travels from leader to
        follower.
        """
        name = f"rule-{next(self._rule_numbers)}"
        rule = Rule(
            id=name,
            action="hold",
            message="response" if response else "request",
            api=api,
            source=self._end_of(source),
            destination=self._end_of(destination),
            where=where,
        )
        self._rules.append(name)
        self._do(self._faults.install(rule))
        return name

    def release(self, rule: str) -> None:
        self._do(self._faults.release(rule))
        self._rules.remove(rule)

    def discard(self, rule: str) -> None:
        """Throws held messages away, and closes their connections."""
        self._do(self._faults.discard(rule))
        self._rules.remove(rule)

    # --- what is seen ----------------------------------------------------------------------------

    def leader(self, topic: str | None = None, partition: int = 0) -> str | None:
        view = self._stage.view(partition, topic)
        return None if view is None or view.leader is None else self._names[view.leader]

    def isr(self, topic: str | None = None, partition: int = 0) -> Sequence[str]:
        view = self._stage.view(partition, topic)
        return () if view is None else tuple(self._names[broker] for broker in view.isr)

    def log_end_offset(
        self, follower: str, topic: str | None = None, partition: int = 0
    ) -> int | None:
        """What the follower has, by its last fetch from the leader of now. None: no such fetch."""
        named = {spec.name: spec for spec in self._stage.spec.topics}
        if topic is not None and topic not in named:
            there = ", ".join(named)
            raise UsageError(f"There is no topic {topic!r}; it must be one of {there}.")
        spec = self._stage.spec.topic if topic is None else named[topic]
        return StageObserved(self._stage, partition, spec).log_end_offset(self._id(follower))

    def is_held(self, source: str, destination: str) -> bool:
        """Whether `hold` keeps a message from source to destination."""
        return StageObserved(self._stage).held(self._end_of(source), self._end_of(destination))

    def wait_until(
        self, condition: Callable[[], bool], within_s: float = _WITHIN_S, what: str = ""
    ) -> None:
        """Returns as soon as the condition is true. Raises WaitFailure, a TimeoutError, that says
        what is so instead."""
        try:
            self._do(self._stage.until(condition, within_s, what or _source_of(condition)))
        except TimeoutError as error:
            self.waited_in_vain = True
            said = [f"neaptide: {error}", *(f"  {line}" for line in self._seen())]
            raise WaitFailure("\n".join(said), self.run, unknown=True) from None

    @property
    def run(self) -> Path:
        return self._stage.run

    def _seen(self) -> Iterator[str]:
        """The state of the cluster, a line for each partition."""
        for topic in self._stage.spec.topics:
            for partition, replicas in topic.assignment.items():
                yield self._seen_of(topic, partition, replicas)
        held = [
            f"{one} to {other}"
            for one, other in itertools.permutations(self._ids, 2)
            if self.is_held(one, other)
        ]
        if held:
            yield f"held: messages from {', '.join(held)}"
        reachable = [name for name, broker in self._ids.items() if self._stage.is_reachable(broker)]
        if len(reachable) < len(self._ids):
            yield f"down or paused: {', '.join(sorted(set(self._ids) - set(reachable)))}"
        asked = self._stage.spec.settings
        short = [f"{name}={asked[name]}" for name in SHORTENED if name in asked]
        yield f"shorter here than Kafka's defaults: {', '.join(short)}"
        yield f"report: {self.run / REPORT_FILE} (once the test is over)"

    def _seen_of(self, topic: TopicSpec, partition: int, replicas: Sequence[int]) -> str:
        leader = self.leader(topic.name, partition)
        isr = " ".join(self.isr(topic.name, partition)) or "empty"
        ends = {
            name: self.log_end_offset(name, topic.name, partition)
            for name in map(self._names.__getitem__, replicas)
            if name != leader
        }
        known = [f"{name} {'not known' if end is None else end}" for name, end in ends.items()]
        return (
            f"{topic.name}-{partition}: leader {leader or 'none'}, ISR {isr};"
            f" log ends by the last fetches: {', '.join(known) or 'none'}"
        )

    # --- inside ----------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_over or self._running.done():
            work.close()
            if self._is_over:
                raise RuntimeError("The cluster has been ended by this test.")
            raise self._ended(*self._running.result())
        try:
            return self._loop.call(work)
        except (IncidentError, GateError, ClientsError) as error:
            raise self._failed(str(error), self._stage.run) from error

    def _id(self, broker: str) -> int:
        if broker not in self._ids:
            there = ", ".join(self._ids)
            raise UsageError(f"There is no broker {broker!r}; it must be one of {there}.")
        return self._ids[broker]

    def _end_of(self, end: str) -> Endpoint:
        return end if end in ("client", COORDINATION) else self._id(end)


def _source_of(condition: Callable[[], bool]) -> str:
    """As it stands in the test."""
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return "the condition holds"
