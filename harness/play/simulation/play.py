"""A scenario in the simulation, as the work of a run: the record is that of a live run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.simulation.world import World
from neaptide.harness.live.account import Account
from neaptide.harness.live.ending import Ending
from neaptide.harness.play.run_record import Finished
from neaptide.harness.play.simulation.recording import RunRecorder
from neaptide.harness.scenarios.predictions import round_disagreements, unseen_sights
from neaptide.nemesis.scenario import Scenario
from neaptide.nemesis.search.play import simulate
from neaptide.results.run import Aim, Converged, FinalRead


async def play_simulated(
    scenario: Scenario, system: str, directory: Path, account: Account
) -> Finished:
    """Plays a scenario on `neaptide:<generation>`, and writes the tables of its run."""
    return await asyncio.to_thread(_play, scenario, system, directory, account)


def _play(scenario: Scenario, system: str, directory: Path, account: Account) -> Finished:
    recorders: list[RunRecorder] = []

    def record(world: World) -> Any:
        recorder = RunRecorder(world)
        world.network.recorder = recorder
        recorders.append(recorder)
        account.started(recorder.assigned())
        return recorder.note_nemesis

    simulated = simulate(
        scenario,
        GENERATIONS[system.partition(":")[2]],
        record,
        lambda observed: unseen_sights(scenario, system, observed),
    )
    for table, written in recorders[0].write(directory).items():
        for writer, count in written.items():
            account.wrote(table, writer, count)
    ended = simulated.ended
    final_read = FinalRead(
        scenario.topic.name, 0, ended.end_offset, ended.final is not None, ended.start_offset
    )
    converged = Converged(ended.level, "" if ended.level else "not level in 60 simulated s")
    return Finished(
        Aim(not simulated.missed, simulated.missed),
        Ending(converged, (final_read,), replicas_written=True),
        (*simulated.disagreements, *round_disagreements(scenario, directory)),
    )
