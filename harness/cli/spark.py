"""The commands `spark start`, `spark stop`, `spark status`: a Spark that stays warm for checks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from neaptide.clusters.hosts.java import find_java
from neaptide.harness.checking import warm_spark
from neaptide.harness.cli.options import Json, duration
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit

app = typer.Typer(
    help="Keep a Spark running, so that checks start at once.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def start(
    idle_s: Annotated[
        float, duration("--idle", "How long it stays when nobody checks anything: 90s, 30m, 8h.")
    ] = 1800,
    memory: Annotated[
        str, typer.Option(help="How much memory it may use, such as 900m or 4g.")
    ] = warm_spark.MEMORY,
    json: Json = False,
) -> None:
    """Start a Spark that all commands of yours find; it ends by itself when nobody uses it."""
    from neaptide.checkers.pipeline.cluster_session import check_connect
    from neaptide.harness.checking.check import check_spark

    check_spark(None, None, memory)
    check_connect()
    find_java()
    with output.reporting(1) as reporter:
        record, is_new = warm_spark.start(idle_s, memory, reporter.report)
    if json:
        output.print_json({"started": is_new, **_row(record)})
        return
    how = "is warm" if is_new else "was there already"
    output.out.print(
        f"Spark {how} (pid {record.keeper.pid}). It ends after {record.idle_s / 60:g} minutes"
        " without a check, or with: neaptide spark stop",
        markup=False,
    )


@app.command()
def stop(json: Json = False) -> None:
    """Stop it; also those that were started by other versions of neaptide."""
    found = warm_spark.all_kept()
    stopped = [record for _, record in found if warm_spark.stop(record)]
    if json:
        output.print_json({"stopped": [record.keeper.pid for record in stopped]})
    elif not found:
        output.out.print("No Spark is kept.")
    for record in stopped if not json else []:
        output.out.print(f"Spark has ended (pid {record.keeper.pid}).", markup=False)
    raise typer.Exit(Exit.AGREES if len(stopped) == len(found) else Exit.UNKNOWN)


@app.command()
def status(json: Json = False) -> None:
    """Show which Sparks are kept, and how much they are used. Status 69: none for this code."""
    of_this_code = warm_spark.directory()
    found = [
        {**_row(record), "leased": use.leased, "unused_s": round(use.unused_s, 1),
         "of_this_code": path == of_this_code}
        for path, record in warm_spark.all_kept()
        for use in [warm_spark.use_of(path)]
    ]  # fmt: skip
    if json:
        output.print_json({"sparks": found})
    elif not found:
        output.out.print("No Spark is kept. Start one: neaptide spark start")
    else:
        rows = [
            (
                str(row["pid"]),
                str(row["address"]),
                str(row["since_utc"]),
                str(row["memory"]),
                f"{row['leased']} checks now"
                if row["leased"]
                else f"unused for {row['unused_s']} s of {row['idle_s']} s",
                "yes" if row["of_this_code"] else "no",
            )
            for row in found
        ]
        output.print_table(("pid", "address", "since", "memory", "use", "of this code"), rows)
    there = any(row["of_this_code"] for row in found)
    raise typer.Exit(Exit.AGREES if there else Exit.MISSING)


def _row(record: warm_spark.Kept) -> dict[str, object]:
    since = datetime.fromtimestamp(record.since_s, UTC)
    return {
        "pid": record.keeper.pid,
        "address": record.address,
        "since_utc": since.isoformat(timespec="seconds"),
        "idle_s": record.idle_s,
        "memory": record.memory,
        "warm": record.warm,
    }
