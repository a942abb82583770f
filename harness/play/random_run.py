"""A randomised run: a workload under load, and a schedule of faults drawn from the seed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.cluster import ClusterSpec
from neaptide.clusters.own.model import Managed
from neaptide.clusters.producer import MAX_IN_FLIGHT_IDEMPOTENT, ProducerOptions, in_flight_of
from neaptide.harness.live.account import Account
from neaptide.harness.live.ending import Ending, end, heal_all
from neaptide.harness.live.faults import Faults
from neaptide.harness.live.guard import guarded
from neaptide.harness.live.stage import OF_TRANSACTIONS, Stage
from neaptide.harness.play.random_asked import RandomRun
from neaptide.harness.play.random_load import RandomLoad, brokers_settings, topics_of
from neaptide.harness.play.random_nemesis import RandomNemesis
from neaptide.harness.play.run_record import Finished, new_run, record
from neaptide.harness.scenarios.saved_schedule import document_of
from neaptide.harness.scenarios.systems import System, generation_of, has_voters
from neaptide.nemesis.drawn.schedule import never_drawn
from neaptide.results.run import Aim, named_brokers
from neaptide.results.stop import asked_to_stop
from neaptide.workloads.catalog import find_workload

Progress = Callable[[str, float, Mapping[str, int]], None]
_PROGRESS_S: Final = 0.5
_VOTERS: Final = 3
# So that a fault of seconds is a fault, and not one long hiccup.
SHORT_TIMES: Final = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "100",
    "replica.socket.timeout.ms": "3000",
    "zookeeper.session.timeout.ms": "2000",
    "unclean.leader.election.enable": "false",
}
_DEFAULT_SETTINGS: Final = {**SHORT_TIMES, "min.insync.replicas": "2"}
# A fault that is aimed at fetch rounds holds for as long as a session lasts, and no follower leaves
# the ISR for that.
AIMED_SETTINGS: Final = {"replica.lag.time.max.ms": "5000"}


def producer_options(asked: RandomRun) -> ProducerOptions:
    """As many requests in flight as batches that the leader recognizes: five, on our 0.11 one."""
    if not (asked.idempotence or find_workload(asked.workload).idempotence):
        return ProducerOptions()
    rules = generation_of(asked.system)
    return ProducerOptions(True, in_flight_of(rules) if rules else MAX_IN_FLIGHT_IDEMPOTENT)


async def run_random(
    asked: RandomRun,
    progress: Progress,
    on_nemesis: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Path:
    """Runs it; returns the run directory. `progress` gets a line, the seconds so far, counts;
    `on_nemesis` what is done to the cluster, as the history has it."""
    brokers = asked.broker_ids
    schedule, names = asked.schedule(), asked.fault_names
    run = replace(
        new_run(asked.workload, asked.system, asked.seed, "random"),
        title=f"{asked.workload} under {', '.join(names) or 'no faults'}",
        host=asked.place.name,
        brokers=named_brokers(brokers),
        min_acked=asked.min_acked,
        repeat=asked.repeat(),
        clients={
            "client": asked.client,
            "acks": asked.acks,
            "rate": asked.rate,
            "idempotence": asked.idempotence or find_workload(asked.workload).idempotence,
            "subscribe": find_workload(asked.workload).group is not None,
            "producers": asked.producers,
            "consumers": asked.consumers,
            "options": dict(asked.options),
        },
    )
    first, *more = topics_of(asked, brokers)
    named = {number: name for name, number in run.brokers.items()}
    assignment = [[named[one] for one in first.assignment[p]] for p in sorted(first.assignment)]
    topic = first.name, assignment
    document = document_of(run.title, run.repeat, tuple(run.brokers), topic, schedule)
    run = replace(run, schedule=document)
    spec = ClusterSpec(
        brokers,
        {
            **_unsaid(
                asked.system,
                {
                    **_DEFAULT_SETTINGS,
                    **(AIMED_SETTINGS if "rounds" in names else {}),
                    **brokers_settings(asked.workload, len(brokers)),
                },
            ),
            **asked.settings,
        },
        first,
        more=tuple(more),
        clocks="clock" in names,
        **_quorum_of(asked),
    )

    in_transactions = find_workload(asked.workload).transactional_id is not None
    reads = OF_TRANSACTIONS if in_transactions and asked.system.own is None else frozenset()

    async def work(directory: Path, account: Account) -> Finished:
        async with Stage(
            directory,
            asked.system,
            spec,
            asked.place,
            account,
            reads=reads,
            toxics="slow" in names,
        ) as stage:
            stage.on_nemesis = on_nemesis
            stage.names = {broker: name for name, broker in run.brokers.items()}
            faults = Faults(stage)
            load = RandomLoad(stage, asked)
            nemesis = RandomNemesis(
                stage,
                faults,
                schedule,
                load,
                run.brokers,
                asked.coordinated,
                never_drawn(asked.faults, schedule),
                asked.seed,
            )
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


def _quorum_of(asked: RandomRun) -> dict[str, Any]:
    """Voters leave and come back where members change: of three, two decide meanwhile."""
    if "members" not in asked.fault_names or not has_voters(asked.system):
        return {}
    return {"controllers": _VOTERS, "changes_voters": True}


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
    await do_faults(stage, load, nemesis, asked, progress)
    await load.stop_senders()
    progress("healing, final reads, replica logs", asked.time_s, {})
    await heal_all(stage, faults, ())
    await nemesis.settle()
    await load.finish()
    return await end(stage)


async def do_faults(
    stage: Stage,
    load: RandomLoad,
    nemesis: RandomNemesis,
    asked: RandomRun,
    progress: Progress,
) -> None:
    """Until the time is over, or somebody asks the run to stop."""
    begun = time.monotonic()

    async def report_progress() -> None:
        while True:
            progress(nemesis.doing, time.monotonic() - begun, await load.counts())
            if asked_to_stop(stage.run) is not None:
                nemesis.stopping.set()
            await asyncio.sleep(_PROGRESS_S)

    reporting = asyncio.create_task(report_progress())
    reporting.add_done_callback(lambda _: nemesis.stopping.set())  # its failure ends the load
    try:
        await nemesis.play(asked.time_s)
    finally:
        reporting.cancel()
        # Also where the nemesis has failed first: nobody else asks how this ended.
        [ended] = await asyncio.gather(reporting, return_exceptions=True)
    if isinstance(ended, Exception):
        raise ended
