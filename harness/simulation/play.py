"""A scenario in the simulation, with the run directory of a live run: so the same checks do."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusters.broker.replication.generation import Generation
from clusters.simulation.world import World
from harness.predictions import round_disagreements, unseen_sights
from harness.simulation.recording import RunRecorder
from harness.version import VERSION
from nemesis.scenario import Scenario, expected_outcome
from nemesis.search.play import simulate
from results.run import Aim, Converged, FinalRead, Run
from results.store import create_run, write_run

HOST = "simulation"


def play_simulated(
    scenario: Scenario, system: str, rules: Generation, seed: int, where: str
) -> tuple[Path, tuple[str, ...]]:
    """Plays a scenario and writes its run directory."""
    started = datetime.now(UTC)
    recorders: list[RunRecorder] = []

    def record(world: World) -> Any:
        recorder = RunRecorder(world)
        world.recorder = recorder
        recorders.append(recorder)
        return recorder.note_nemesis

    simulated = simulate(
        scenario, rules, record, lambda observed: unseen_sights(scenario, system, observed)
    )
    directory = create_run(scenario.name, system, seed, started)
    recorders[0].write(directory)
    ended = simulated.ended
    run = Run(
        neaptide=VERSION,
        name=scenario.name,
        title=scenario.title,
        source=scenario.source,
        system=system,
        host=HOST,
        seed=seed,
        started_utc=started.isoformat(timespec="milliseconds"),
        status="finished",
        kind="scenario",
        schedule=dict(scenario.document),
        brokers=dict(scenario.brokers),
        expected=expected_outcome(scenario, system),
        aim=Aim(not simulated.missed, simulated.missed),
        converged=Converged(ended.level, "" if ended.level else "not level in 60 simulated s"),
        final_reads=(
            FinalRead(
                scenario.topic.name,
                0,
                ended.end_offset,
                ended.final is not None,
                ended.start_offset,
            ),
        ),
        replicas_written=True,
        repeat=(
            f"neaptide replay {shlex.quote(where)} --system {system} --host {HOST} --seed {seed}"
        ),
    )
    write_run(directory, run)
    seen = (*simulated.disagreements, *round_disagreements(scenario, directory))
    return directory, seen
