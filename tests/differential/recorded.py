"""Recorded runs judged by both: by `neaptide check`, and as EDN by Jepsen's own checker.

    python -m tests.differential.recorded --judge COMMAND RUN…

Each run of transactions (txn, stream) is judged as it was recorded and twice more, with one
transaction that ended otherwise than was recorded: an aborted one is recorded as committed (what it
sent is lost), and a committed one as aborted (what was read of it was aborted). One line of JSON
each; the status is 1 where the two differ. A run without such a transaction is judged as it is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.check import check_runs
from neaptide.checkers.histories.writer import export_history
from neaptide.checkers.pipeline.session import local_session
from neaptide.checkers.verdict import RunVerdict
from tests.differential.jepsen import Said, ask, said

OTHERWISE: Final = {"lost": ("fail", "ok"), "aborted": ("ok", "fail")}
_JUDGED_BY_JEPSEN: Final = {name for name, one in ANOMALIES.items() if one.jepsen and one.counts}
_LEFT_OUT: Final = shutil.ignore_patterns("broker-*", "zookeeper", "anomalies", "logs")


def variants(run: Path, directory: Path) -> Iterator[Path]:
    """The run as it was recorded, and with a transaction that ended otherwise."""
    yield Path(shutil.copytree(run, directory / run.name, ignore=_LEFT_OUT))
    for name, (recorded, instead) in OTHERWISE.items():
        copy = directory / f"{run.name}-{name}"
        shutil.copytree(run, copy, ignore=_LEFT_OUT)
        if any(end_otherwise(f, recorded, instead) for f in sorted(copy.glob("operations/*"))):
            yield copy


def end_otherwise(file: Path, recorded: str, instead: str) -> bool:
    """Changes one transaction of a file, if one has ended so and has sent to a known offset."""
    table = pq.read_table(file)
    if "mop" not in table.column_names:
        return False
    ended_so = pc.and_(pc.equal(table["type"], recorded), pc.is_valid(table["mop"]))
    has_sent = pc.and_(pc.equal(table["f"], "send"), pc.is_valid(table["offset"]))
    operations = pc.unique(table["operation"].filter(pc.and_(ended_so, has_sent))).to_pylist()
    if not operations:
        return False
    chosen = pc.equal(table["operation"], operations[len(operations) // 2])
    types = pc.if_else(chosen, pa.scalar(instead), table["type"])
    at = table.schema.get_field_index("type")
    field = table.schema.field(at)
    pq.write_table(table.set_column(at, field, types.cast(field.type)), file)
    return True


def line(name: str, ours: RunVerdict, theirs: Said) -> dict[str, Any]:
    """What both said; Jepsen calls a lost record unseen as well."""
    bad = set(theirs.bad)
    if theirs.sets.get("unseen", frozenset()) <= theirs.sets.get("lost-write", frozenset()):
        bad.discard("unseen")
    said = {**ours.anomalies, **ours.allowed}
    found = {anomaly for anomaly, count in said.items() if count} & _JUDGED_BY_JEPSEN
    return {
        "run": name,
        "ours": ours.verdict,
        "anomalies": said,
        "jepsen": theirs.throws or ("valid" if theirs.valid else "invalid"),
        "errors": sorted(theirs.bad),
        "agree": not theirs.throws and found == bad,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", type=Path, required=True, help="see docs/jepsen.md")
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    agree = True
    spark = local_session()
    with tempfile.TemporaryDirectory() as scratch:
        runs = [one for run in options.runs for one in variants(run, Path(scratch))]
        verdicts = check_runs(spark, runs)
        histories = [Path(scratch) / f"{run.name}.edn" for run in runs]
        for run, history in zip(runs, histories, strict=True):
            export_history(spark, run, history)
        spark.stop()
        answers = ask(options.judge, histories)
    for run, ours, answer in zip(runs, verdicts, answers, strict=True):
        reported = line(run.name, ours, said(answer))
        agree = agree and reported["agree"]
        print(json.dumps(reported))
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
