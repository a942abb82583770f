"""The client side of a randomised run: the clients of its workload, from begin to end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from neaptide.clusters.broker.replication.controller.replica_assignment import assign_replicas
from neaptide.clusters.cluster import TopicSpec
from neaptide.clusters.producer import ProducerOptions
from neaptide.harness.live.ending import READ_WITHIN_S
from neaptide.harness.live.stage import Stage
from neaptide.harness.play.random_asked import RandomRun
from neaptide.results.run import Incident
from neaptide.workloads.catalog import Clients, find_workload
from neaptide.workloads.clients import Clients as ClientsProcess
from neaptide.workloads.libraries.table import LIBRARIES
from neaptide.workloads.pool import ClientPool
from neaptide.workloads.roles.role import Task

_STOP_WITHIN_S: Final = 60.0
_IDLE_WITHIN_S: Final = 60.0  # without doing anything
_IDLE_AT_MOST_S: Final = 600.0
_REPLICAS: Final = 3


# --- what is there before it begins --------------------------------------------------------------


def topics_of(asked: RandomRun, brokers: Sequence[int]) -> tuple[TopicSpec, ...]:
    """At least one."""
    workload = find_workload(asked.workload)
    replicas = min(_REPLICAS, len(brokers))
    return tuple(
        TopicSpec(
            name,
            assign_replicas(name, brokers, asked.partitions, replicas),
            dict(workload.topic_settings),
        )
        for name in names_of(asked)
    )


def names_of(asked: RandomRun) -> tuple[str, ...]:
    """Of the topics; on a cluster with others' topics they are named apart from those."""
    names = find_workload(asked.workload).topics(asked.topics)
    if asked.system.used is None:
        return names
    return tuple(f"neaptide-{asked.seed}-{name}" for name in names)


def brokers_settings(workload: str, brokers: int) -> dict[str, str]:
    """As many replicas of Kafka's own topics as there can be."""
    settings = find_workload(workload).broker_settings
    return {
        name: str(min(int(value), brokers)) if name.endswith(("factor", "min.isr")) else value
        for name, value in settings.items()
    }


def tasks_of(asked: RandomRun) -> list[tuple[Task, bool]]:
    """What each client does, and whether it is never killed; those that may be come first."""
    workload = find_workload(asked.workload)
    names = names_of(asked)
    tasks = []
    for clients in sorted(workload.clients, key=lambda one: one.lives):
        count = _count(clients, asked)
        topics = {"all": names, "first": names[:1], "last": names[-1:]}[clients.topics]
        for index in range(count):
            task = Task(
                role=clients.role,
                index=index,
                of=count,
                topics=dict.fromkeys(topics, asked.partitions),
                rate=asked.rate / count,
                acks=asked.acks,
                idempotence=asked.idempotence or workload.idempotence,
                seed=asked.seed,
                options=dict(asked.options),
            )
            tasks.append((task, clients.lives))
    return tasks


def _count(clients: Clients, asked: RandomRun) -> int:
    return {"producers": asked.producers, "consumers": asked.consumers, "one": 1}[clients.many]


# --- while it runs -------------------------------------------------------------------------------


class RandomLoad:
    """The clients of a run. Faults kill and replace them by their places in the pool."""

    def __init__(self, stage: Stage, asked: RandomRun) -> None:
        self.stage = stage
        self.asked = asked
        self.pool: ClientPool

    @property
    def killable(self) -> int:
        """How many may be killed: the first ones."""
        return sum(not lives for _, lives in tasks_of(self.asked))

    async def begin(self, options: ProducerOptions) -> None:
        stage, asked = self.stage, self.asked
        await asyncio.to_thread(LIBRARIES[asked.client]().prepare)
        await stage.start_clients(ProducerOptions())
        _say_settings(stage, find_workload(asked.workload).said(asked.options))

        async def start(number: int) -> ClientsProcess:
            return await stage.start_more_clients(number, options, asked.client)

        self.pool = ClientPool(start, stage.forget_clients, stage.recorder)
        await self.pool.open(tasks_of(asked))

    async def counts(self) -> Mapping[str, int]:
        return await self.pool.counts()

    async def kill_one(self, client: int) -> None:
        """A crash is an operation of the history, as other faults are."""
        begun_ns = self.stage.recorder.now_ns()
        pid = await self.pool.kill_one(client)
        role = self.pool.members[client].task.role
        if pid is not None:
            self.stage.note_nemesis({"kill_client": {"client": client, "role": role}}, begun_ns)

    async def replace_one(self, client: int) -> None:
        begun_ns = self.stage.recorder.now_ns()
        await self.pool.replace(client)
        self.stage.note_nemesis({"start_client": {"client": client}}, begun_ns)

    async def stop_senders(self) -> None:
        await self.pool.stop_senders(_STOP_WITHIN_S)
        self._note_cut_off()

    async def finish(self) -> None:
        """When the cluster is healed: who reads comes to the end, and groups say where they are."""
        for client in range(len(self.pool.members)):
            await self.pool.replace(client)
        await self.pool.finish(_IDLE_WITHIN_S, _IDLE_AT_MOST_S, _STOP_WITHIN_S)
        self._note_cut_off()
        for problem in self.pool.problems:
            self.stage.account.note(Incident("client", f"{problem.capitalize()}."))
        group = self.asked.options.get("group")
        for topic in self.stage.spec.topics if group is not None else ():
            for partition in sorted(topic.assignment):
                await self.stage.clients.do(
                    "position",
                    group=group,
                    topic=topic.name,
                    partition=partition,
                    deadline_s=READ_WITHIN_S,
                )
        await self.pool.flush()

    def _note_cut_off(self) -> None:
        """No incident: what such a client had begun is in the history, its end as not known."""
        for why in self.pool.cut_off:
            self.stage.note_nemesis({"cut_off": {"why": why}}, self.stage.recorder.now_ns())
        self.pool.cut_off.clear()


def _say_settings(stage: Stage, settings: Mapping[str, str]) -> None:
    for topic in stage.spec.topics:
        named = ((*name.rpartition(":")[::2], value) for name, value in settings.items())
        of_topic = {key: value for of, key, value in named if of in ("", topic.name)}
        stage.note_settings(topic, of_topic)
