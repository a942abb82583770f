"""A search whose seeds are spread over the executors of a Spark cluster.

Not the search, nor what is made of its finds: each task explores seeds as a worker process here
would, and hands back a row a seed. What a seed comes to does not depend on where it was explored.

The rule: DataFrames only. The executors need Python and the libraries of neaptide; its own code is
sent along. A seed is a job of one task. Seeds take unequal time: who is free takes the next, and a
campaign can end with its first find.
"""

from __future__ import annotations

import gc
import pickle
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from neaptide.clusters.errors import UsageError
from neaptide.harness.checking.spark_java import SparkHome
from neaptide.nemesis.search.campaign import (
    GARBAGE_MAX,
    Campaign,
    Clock,
    Report,
    Until,
    as_they_end,
    collect,
)
from neaptide.nemesis.search.episode import Explored, Loss, explore_seed
from neaptide.nemesis.search.search import Search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("checkers", "clusters", "harness", "nemesis", "results", "workloads")
PLACES_MAX: Final = 128  # each takes a thread here that waits for its job
HISTORIES_MAX: Final = 20

_EXPLORED: Final = pa.schema(
    [
        pa.field("seed", pa.int64()),
        pa.field("schedules", pa.int64()),
        pa.field("states", pa.int64()),
        pa.field("document", pa.string()),  # the scenario file of what was found
        pa.field("loss", pa.binary()),  # all that is known of it; null: nothing was found
    ]
)
_FILES: Final = pa.schema(
    [pa.field("run", pa.string()), pa.field("file", pa.string()), pa.field("content", pa.binary())]
)
_SQL: Final = {
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
}


def run_on_spark(
    master: str,
    search: Search,
    first_seed: int,
    until: Until,
    report: Report,
    histories: Path | None,
) -> tuple[Campaign, float, tuple[Path, ...]]:
    """As nemesis.search.campaign.run_campaign; and the run directories of what was found."""
    from neaptide.checkers.pipeline.cluster_session import is_master, master_session
    from neaptide.checkers.pipeline.own_code import send_code

    if not is_master(master):
        raise UsageError(
            f"--master {master!r} must be local[N], spark://HOST:PORT, yarn or k8s://ADDRESS."
        )
    home = SparkHome()
    with home.starting():
        spark = master_session(master, java_options=home.java_options)
    # Spark's own speaks to Java in the midst of what is being said to it; ours ends the session.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        send_code(spark, PACKAGES)
        campaign, seconds = collect(
            lambda clock: _explore_all(spark, search, first_seed, until.seeds, clock),
            until,
            report,
        )
        losses = campaign.shortest()[:HISTORIES_MAX]
        runs = () if histories is None else _histories(spark, search, losses, histories)
        return campaign, seconds, runs
    finally:
        spark.stop()
        home.close()


# --- exploring -----------------------------------------------------------------------------------


def _explore_all(
    spark: SparkSession, search: Search, first_seed: int, seeds: int | None, clock: Clock
) -> Iterator[Explored]:
    pool = ThreadPoolExecutor(PLACES_MAX + 2)
    try:
        yield from as_they_end(
            lambda seed: pool.submit(_explore, spark, search, seed, clock.left_s()),
            lambda: min(pool.submit(_places, spark).result(), PLACES_MAX),  # an interrupt hits us
            first_seed,
            seeds,
            clock,
        )
    finally:  # jobs that still run end with the session
        pool.shutdown(wait=False, cancel_futures=True)


def _places(spark: SparkSession) -> int:
    """How many tasks the cluster does at once now: executors come and go."""
    return int(spark.sparkContext.defaultParallelism)


def _explore(spark: SparkSession, search: Search, seed: int, time_s: float | None) -> Explored:
    """On an executor, in a Python process that takes one seed after the other."""

    def explore(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc.disable()  # as in a worker process here: it finds nothing in a search
        for _ in batches:
            explored = explore_seed(search, seed, time_s)
            if gc.get_count()[0] > GARBAGE_MAX:
                gc.collect()
            yield _row(explored)

    one = spark.range(0, 1, numPartitions=1).mapInArrow(explore, _ddl(_EXPLORED))
    [row] = one.collect()
    loss: Loss | None = None if row["loss"] is None else pickle.loads(row["loss"])
    return Explored(row["seed"], row["schedules"], row["states"], loss)


def _row(explored: Explored) -> pa.RecordBatch:
    loss = explored.loss
    return pa.RecordBatch.from_pylist(
        [
            {
                "seed": explored.seed,
                "schedules": explored.schedules,
                "states": explored.states,
                "document": None if loss is None else loss.document,
                "loss": None if loss is None else pickle.dumps(loss),
            }
        ],
        _EXPLORED,
    )


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_SQL[field.type]}" for field in schema)


# --- histories -----------------------------------------------------------------------------------


def _histories(
    spark: SparkSession, search: Search, losses: Sequence[Loss], directory: Path
) -> tuple[Path, ...]:
    """Every find is played once more, on an executor; its run directory comes back."""
    if not losses:
        return ()
    documents = {loss.seed: loss.document for loss in losses}
    system = f"neaptide:{search.rules.name}"

    def play(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                seed = sorted(documents)[index]
                yield from _played(documents[seed], system, seed)

    tasks = min(_places(spark), len(documents))
    frame = spark.range(0, len(documents), numPartitions=tasks).mapInArrow(play, _ddl(_FILES))
    runs: dict[str, Path] = {}
    for row in frame.collect():  # an iterator would have one task done after the other
        run = runs.setdefault(row["run"], directory / row["run"])
        path = run / row["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["content"])
    return tuple(runs[name] for name in sorted(runs))


def _played(document: str, system: str, seed: int) -> Iterator[pa.RecordBatch]:
    """The files of a run directory."""
    import asyncio
    import os

    from neaptide.clusters.hosts.place import parse_place
    from neaptide.harness.play.scenario import play
    from neaptide.harness.scenarios.systems import parse_systems
    from neaptide.nemesis.scenario import parse_scenario

    scenario = parse_scenario(f"found-{seed}", document, f"found-{seed}.toml")
    [parsed] = parse_systems([system])
    with tempfile.TemporaryDirectory() as name:
        os.environ["NEAPTIDE_RUNS"] = str(Path(name) / "runs")
        os.environ["NEAPTIDE_STATE"] = str(Path(name) / "state")  # no home is needed there
        place = parse_place("simulation")
        run = asyncio.run(play(scenario, parsed, seed, "found.toml", lambda line: None, place)).run
        for file in sorted(path for path in run.rglob("*") if path.is_file()):
            content = {
                "run": run.name,
                "file": str(file.relative_to(run)),
                "content": file.read_bytes(),
            }
            yield pa.RecordBatch.from_pylist([content], _FILES)
