"""The command `neaptide`: options in, tables or JSON out, a documented exit status.

Nothing is decided here about logs or losses. Errors that a user can mend come out as one sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.ledger import reap_orphans
from neaptide.clusters.hosts.place import Place, check_place, parse_place
from neaptide.harness.checking import spark_watch
from neaptide.harness.cli import check as cli_check
from neaptide.harness.cli import client as cli_client
from neaptide.harness.cli import completion
from neaptide.harness.cli import explore as cli_search
from neaptide.harness.cli import export as cli_export
from neaptide.harness.cli import nightly as cli_nightly
from neaptide.harness.cli import replay as cli_replay
from neaptide.harness.cli import scenarios as cli_scenarios
from neaptide.harness.cli import serve as cli_serve
from neaptide.harness.cli import shrink as cli_shrink
from neaptide.harness.cli import spark as cli_spark
from neaptide.harness.cli import steps as cli_steps
from neaptide.harness.cli import upgrade as cli_upgrade
from neaptide.harness.cli.options import (
    CLUSTER,
    LOAD,
    VERDICT,
    FailOn,
    Host,
    Image,
    Json,
    KafkaHome,
    Master,
    Matrix,
    Nemesis,
    NoCheck,
    Nodes,
    Quiet,
    Repeat,
    Resume,
    RetriesUnknown,
    Seed,
    Systems,
    Verbose,
    drawn,
    duration,
)
from neaptide.harness.live.left_behind import REMOVERS
from neaptide.harness.scenarios.systems import DEFAULT_SYSTEM
from neaptide.harness.terminal import configuration, interrupted, output
from neaptide.harness.terminal.exits import Exit, status_of
from neaptide.harness.terminal.failing import parse_fail_on, verdict_status
from neaptide.harness.terminal.outgoing import guard_streams, status_after
from neaptide.harness.terminal.signals import end_as_by_ctrl_c
from neaptide.harness.terminal.version import VERSION
from neaptide.results.run import read_run

if TYPE_CHECKING:
    from neaptide.harness.play.random_asked import RandomRun

app = typer.Typer(
    name="neaptide",
    help="Breaks Kafka-style replicated logs on purpose and proves what was lost.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit status: 0 as expected, 1 anomaly, 2 unknown (nothing was proved), 64 wrong usage,"
    " 69 something is missing.",
)


_BROKERS = 3  # where nobody says how many
_SPARK_STARTS_S = 15.0  # about as long as Spark takes to start on a busy machine


def _print_line(line: str) -> None:
    output.err.print(line, markup=False)


@app.command()
def repro(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of scenarios. All if you give none.", autocompletion=completion.scenarios
        ),
    ] = None,
    system: Systems = None,
    host: Host = "local",
    image: Image = None,
    nodes: Nodes = None,
    repeat: Repeat = 1,
    matrix: Matrix = None,
    resume: Resume = False,
    kafka_home: KafkaHome = None,
    retries_unknown: RetriesUnknown = 0,
    seed: Seed = None,
    master: Master = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Play documented scenarios, and compare the outcomes with the predicted ones."""
    from neaptide.harness.checking.check import SparkStart, check_spark
    from neaptide.harness.comparing.matrix import report_matrix
    from neaptide.harness.comparing.repro import cells, not_served, report_to_ci, run_cells
    from neaptide.harness.scenarios.catalog import documented
    from neaptide.harness.scenarios.systems import place_of

    check_spark(master, None)
    place = parse_place(host, image, nodes)
    files = documented(scenarios or [])
    todo = cells(
        files,
        system or [],
        repeat,
        kafka_home,
        place.image,
        all_of_them=not scenarios,
        simulated=place.name == "simulation",
    )
    lacking = not_served(files, system or []) if scenarios else []
    for one in lacking:
        _print_line("not served: {scenario} on {system}: {lacks}".format(**one))
    if not todo:
        raise UsageError("There is nothing to play: no system that is named serves it.")
    for here in {cell.system.options: place_of(cell.system, place) for cell in todo}.values():
        check_place(here, _print_line)
    number = drawn(seed)
    find_java()
    output.note(f"seed {number}")
    spark = SparkStart(master)
    with output.reporting(len(todo)) as reporter:
        results = run_cells(
            todo,
            number,
            spark,
            reporter.report,
            place,
            resume=resume,
            retries_unknown=retries_unknown,
        )
    spark.stop()
    report_to_ci(results)
    agrees = bool(results) and all(result.agrees for result in results)
    if json:
        rows = [result.to_json() for result in results]
        output.print_json({"results": rows, "not_served": lacking, "agrees": agrees})
    else:
        output.print_results(results)
    if matrix is not None or len(todo) > 1:
        report_matrix([result.run for result in results], matrix, quiet=json)
    if agrees:
        raise typer.Exit(Exit.AGREES)
    disagrees = any(r.observed != "unknown" and not r.agrees for r in results)
    raise typer.Exit(Exit.ANOMALY if disagrees else Exit.UNKNOWN)


@app.command()
def run(
    context: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(
            help="A workload, such as append. Or a scenario: FILE.toml, or its name.",
            autocompletion=completion.played,
        ),
    ],
    system: Annotated[
        str,
        typer.Option(
            "--system",
            "-s",
            help="The system to test: neaptide:4.0, kafka:3.9.1, or a file, my-cluster.toml.",
            autocompletion=completion.systems,
            rich_help_panel=CLUSTER,
        ),
    ] = DEFAULT_SYSTEM,
    nemesis: Nemesis = "none",
    time_s: Annotated[
        float,
        duration("--time", "How long the load lasts: 90s, 5m, 1h.", least_s=1, panel=LOAD),
    ] = 60,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Records per second, of all producers together; 5000 by default, 500 of stream,"
            " 100 on a cluster that is just used.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    acks: Annotated[
        str, typer.Option(help="acks of the producers: 0, 1 or all.", rich_help_panel=LOAD)
    ] = "all",
    idempotence: Annotated[
        bool,
        typer.Option(
            "--idempotence",
            help="Use idempotent producers, which send a record again if it failed.",
            rich_help_panel=LOAD,
        ),
    ] = False,
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=9,
            help="The number of brokers: 3 if you give none. A system file names its own.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option(min=1, max=1000, help="Partitions of each topic.", rich_help_panel=LOAD)
    ] = 4,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A broker setting, such as min.insync.replicas=1. Repeatable.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    host: Host = "local",
    image: Image = None,
    nodes: Nodes = None,
    kafka_home: KafkaHome = None,
    client: Annotated[
        str,
        typer.Option(
            help="The client library: confluent-kafka, kafka-python, aiokafka, or java.",
            autocompletion=completion.clients,
            rich_help_panel=LOAD,
        ),
    ] = "confluent-kafka",
    producers: Annotated[
        int,
        typer.Option(
            min=1, max=50, help="The number of producers, each a process.", rich_help_panel=LOAD
        ),
    ] = 1,
    consumers: Annotated[
        int,
        typer.Option(
            min=1, max=50, help="The number of consumers, each a process.", rich_help_panel=LOAD
        ),
    ] = 1,
    topics: Annotated[
        int, typer.Option(min=1, max=50, help="The number of topics.", rich_help_panel=LOAD)
    ] = 1,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            help="An option of the workload, such as commit=async. Repeatable.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    min_acked: Annotated[
        int,
        typer.Option(
            min=0,
            help="With fewer acknowledged records the run is unknown.",
            rich_help_panel=VERDICT,
        ),
    ] = 1,
    fail_on: FailOn = "anomaly",
    no_check: NoCheck = False,
    seed: Seed = None,
    master: Master = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Play a workload under random faults, or a scenario of your own."""
    from neaptide.harness.checking.check import check_spark
    from neaptide.harness.scenarios.catalog import scenario_files
    from neaptide.harness.scenarios.systems import brokers_of, parse_systems
    from neaptide.nemesis.scenario import load_scenario

    check_spark(master, None)
    words = None if no_check else parse_fail_on(fail_on)
    place = parse_place(host, image, nodes)
    number = drawn(seed)
    [chosen] = parse_systems([system], kafka_home, place.image)
    shipped = scenario_files()
    if workload.endswith(".toml") and load_scenario(Path(workload)).run is not None:
        _run_schedule(context, Path(workload))
    elif workload.endswith(".toml") or workload in shipped:
        _check_unused(context, _OF_SCENARIOS, workload)
        file = shipped.get(workload, Path(workload))
        _run_scenario(file, workload, chosen, number, json, place, min_acked, words, master)
    else:
        from neaptide.harness.play.random_asked import (
            RandomRun,
            check,
            check_acks,
            parse_nemesis,
            rate_for,
        )
        from neaptide.workloads.catalog import find_workload

        if ":" in workload:
            sys.path.insert(0, str(Path.cwd()))  # as with `python -m`, which finds modules here
        found = find_workload(workload, tuple(shipped))
        faults, saved = parse_nemesis(nemesis, chosen, place, _print_line)
        ids = brokers_of(chosen)
        if ids and brokers not in (None, len(ids)):
            raise UsageError(f"--brokers {brokers}: {chosen} has {len(ids)}; leave it out.")
        sends_a_second = rate_for(chosen, found.rate, rate)
        if rate is None and sends_a_second < found.rate:
            _print_line(
                f"--rate {sends_a_second:g}: the cluster is just used; give --rate for another"
            )
        asked = RandomRun(
            found.name,
            chosen,
            faults,
            time_s,
            sends_a_second,
            number,
            check_acks(acks),
            len(ids) or brokers or _BROKERS,
            partitions,
            _pairs("--set", setting or []),
            place,
            idempotence,
            min_acked,
            saved,
            client,
            producers,
            consumers,
            topics,
            found.parse_options(_pairs("--option", option or [])),
            ids,
        )
        _run_workload(check(asked), json, words, master)


# Of `run`: what it asks of a scenario, too. The scenario's file says all the rest.
_OF_SCENARIOS: Final = frozenset(
    {
        *("workload", "system", "host", "image", "nodes", "kafka_home", "min_acked", "fail_on"),
        *("no_check", "seed", "master", "json"),
    }
)


def _check_unused(context: typer.Context, used: Collection[str], scenario: str) -> None:
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name and parameter.name not in used
        if (source := context.get_parameter_source(parameter.name)) and source.name == "COMMANDLINE"
    ]
    if given:
        raise UsageError(
            f"{', '.join(given)}: nothing of this is used where a scenario is played, as {scenario}"
            " is: its file says what is done. Leave it out, or change the file."
        )


def _run_schedule(context: typer.Context, file: Path) -> None:
    """The schedule of a random run, with the load that its file says, and what is said beside."""
    from neaptide.harness.scenarios import saved_schedule

    words = saved_schedule.command(file)
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is None or source.name != "COMMANDLINE" or parameter.name == "workload":
            continue
        value = context.params[str(parameter.name)]
        values = value if isinstance(value, list | tuple) else [value]
        flag = getattr(parameter, "is_flag", False)
        words += (
            [parameter.opts[0]]
            if flag
            else [w for v in values for w in (parameter.opts[0], f"{v}")]
        )
    parent = context.parent or context
    parent.command.main(words, standalone_mode=False, parent=parent.parent)


def _run_scenario(
    file: Path,
    where: str,
    system: Any,
    seed: int,
    json: bool,
    place: Place,
    min_acked: int,
    fail_on: Sequence[str] | None,
    master: str | None,
) -> None:
    """`where`: what the command was given, so that it can be repeated. `fail_on`: None: it is not
    checked."""
    from neaptide.harness.checking.check import SparkStart, check_and_report
    from neaptide.harness.play.scenario import play
    from neaptide.harness.scenarios.systems import place_of
    from neaptide.nemesis.scenario import load_scenario

    scenario = load_scenario(file)
    check_place(place_of(system, place), _print_line)
    find_java()
    output.note(f"seed {seed}")
    spark = None if fail_on is None else SparkStart(master)
    with output.reporting(len(scenario.steps)) as reporter:
        played = asyncio.run(play(scenario, system, seed, where, reporter.report, place, min_acked))
        if spark is None or fail_on is None:
            _finish_unchecked(played.run, json)
        reporter.report("checking with Spark")
        [verdict] = check_and_report(spark.session(), [played.run])
    spark.stop()
    _finish_run(played.run, verdict, played.disagreements, json, fail_on, where)


def _run_workload(
    asked: RandomRun, json: bool, fail_on: Sequence[str] | None, master: str | None
) -> None:
    from neaptide.harness.checking.check import SparkStart, check_and_report
    from neaptide.harness.play.random_run import run_random
    from neaptide.harness.scenarios.systems import place_of
    from neaptide.results.run import legend_of, named_brokers

    check_place(place_of(asked.system, asked.place), _print_line)
    find_java()
    output.note(f"seed {asked.seed}; to repeat: {asked.repeat()}")
    output.note(legend_of(named_brokers(asked.broker_ids)))

    last_s = 0.0

    def report(doing: str, elapsed_s: float, counts: Mapping[str, int]) -> None:
        nonlocal last_s
        text, last_s = doing, elapsed_s
        if counts:
            text = (
                f"{doing}: {counts['ok']} acknowledged, {counts['fail']} failed,"
                f" {counts['info']} unknown, {counts['polled']} polled"
            )
        reporter.report(text if output.has_bar() else doing, min(elapsed_s, asked.time_s))

    def report_fault(value: Mapping[str, Any]) -> None:
        """A bar has no room for it; a log says when it was, and to whom."""
        if not output.has_bar():
            output.note(f"{last_s:6.1f} s  {output.fault_text(value)}")

    # Its Java is no load for a cluster that is tested for longer than it takes to start.
    later_s = max(0.0, asked.time_s - _SPARK_STARTS_S)
    spark = None if fail_on is None else SparkStart(master, after_s=later_s)
    with output.reporting(asked.time_s) as reporter:
        directory = asyncio.run(run_random(asked, report, report_fault))
        if spark is None or fail_on is None:
            _finish_unchecked(directory, json)
        reporter.report("checking with Spark", asked.time_s)
        [verdict] = check_and_report(spark.session(), [directory], plots=True)
    spark.stop()
    _finish_run(directory, verdict, (), json, fail_on)


def _finish_unchecked(run: Path, json: bool) -> NoReturn:
    """Status 0 says that the run was recorded to its end, and nothing else."""
    record = read_run(run)
    if json:
        document = {"run": str(run), "verdict": "unchecked", "status": record.status}
        output.print_json(document)
    else:
        what = f"{record.status}, not checked: {output.shown(run)}"
        output.out.print(f"{what}\ncheck it: neaptide check {output.shown(run)}", markup=False)
        if record.aim is not None and not record.aim.hit:
            output.out.print(f"  {record.aim.why}", markup=False)
    raise typer.Exit(Exit.AGREES if record.status == "finished" else Exit.UNKNOWN)


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{option} {text!r} is not of the form name=value.")
        settings[name.strip()] = value.strip()
    return settings


def _finish_run(
    run: Path,
    verdict: Any,
    disagreements: tuple[str, ...],
    json: bool,
    fail_on: Sequence[str],
    where: str = "",
) -> None:
    from neaptide.harness.terminal import ci

    record = read_run(run)
    status = verdict_status([verdict], fail_on, record.expected)
    if disagreements and status is Exit.AGREES:
        status = Exit.ANOMALY
    row = (run, verdict.to_json())
    good = status is Exit.AGREES
    ci.report(ci.judged([row], [good], [record.expected], files=[where]))
    if json:
        not_done = [{"fault": one.fault, "why": one.why} for one in record.missed]
        said = {"expected": record.expected, "missed": not_done, "run": str(run)}
        output.print_json({**verdict.to_json(), **said})
    else:
        cells = {
            "verdict": verdict.verdict,
            **({"expected": record.expected} if record.expected else {}),
            "outcome": verdict.outcome,
            "operations": str(verdict.operations),
            "anomalies": output.anomalies_text(verdict.anomalies),
        }
        output.print_table(list(cells), [list(cells.values())])
        if verdict.allowed:
            allowed = output.anomalies_text(verdict.allowed)
            output.out.print(f"  allowed in this run: {allowed}", markup=False)
        for reason in (*verdict.reasons, *disagreements):
            output.out.print(f"  {reason}", markup=False)
        for sight in record.confirmed:
            output.out.print(f"  seen as predicted: {sight}", markup=False)
        for missed in record.missed:
            where = f"missed in act {missed.phase}" if missed.phase else "did not happen"
            output.out.print(f"  {where}: {missed.fault}: {missed.why}", markup=False)
        if not record.logs_readable:
            output.out.print(
                "  no replica's log was read: the verdict is about what clients saw", markup=False
            )
        if record.left:
            output.out.print(f"  left on the cluster: {', '.join(record.left)}", markup=False)
        output.out.print(f"report: {output.shown(run / 'report.html')}", markup=False)
    raise typer.Exit(status)


@app.command("matrix")
def matrix_(
    runs: Annotated[list[str], typer.Argument(help="Run directories, or directories of them.")],
    matrix: Matrix = None,
    master: Master = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Make the table scenario × system from saved runs. Runs without a verdict are checked."""
    from neaptide.harness.checking.check import check_spark
    from neaptide.harness.comparing.matrix import check_missing, report_matrix, scenario_runs

    check_spark(master, None)
    directories = scenario_runs(runs)
    check_missing(directories, master)
    matrix_ = report_matrix(directories, matrix, quiet=json)
    if json:
        output.print_json(matrix_.to_json())
    counts = matrix_.counts
    if counts["disagrees"]:
        raise typer.Exit(Exit.ANOMALY)
    raise typer.Exit(Exit.UNKNOWN if counts["unknown"] else Exit.AGREES)


@app.command()
def doctor(json: Json = False) -> None:
    """List what this machine can do, and what is missing."""
    from neaptide.harness.cli.doctor import examine

    findings = examine()
    if json:
        parts = [
            {
                "part": f.part,
                "needed_for": f.needed_for,
                "present": f.present,
                "required": f.required,
                "detail": f.detail,
            }
            for f in findings
        ]
        output.print_json({"parts": parts})
    else:
        rows = [(f.part, "yes" if f.present else "no", f.needed_for, f.detail) for f in findings]
        output.print_table(("part", "there", "needed for", "detail"), rows)
    missing = any(f.required and not f.present for f in findings)
    raise typer.Exit(Exit.MISSING if missing else Exit.AGREES)


def _version(shown: bool) -> None:
    if shown:
        output.out.print(VERSION)
        raise typer.Exit()


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    isolated: Annotated[
        bool,
        typer.Option(
            "--isolated", help="Ignore neaptide.toml, pyproject.toml and the variables of options."
        ),
    ] = False,
) -> None:
    """Before every command: its defaults, and the end of what a killed harness has left behind."""
    if not isolated:
        file = configuration.find_file(Path.cwd())
        configuration.set_directories(file)
        context.obj = file
        context.default_map = configuration.defaults_of(context.command, file, os.environ)
    for what in reap_orphans(removers=REMOVERS, complain=_print_line):
        output.err.print(f"ended what an earlier run left behind: {what}", markup=False)


app.command()(cli_check.check)
app.add_typer(cli_search.app, name="explore")
app.command()(cli_replay.replay)
app.command("shrink")(cli_shrink.shrink_)
app.command()(cli_steps.steps)
app.command()(cli_serve.serve)
app.command()(cli_nightly.nightly)
app.command("list")(cli_scenarios.list_)
app.command()(cli_scenarios.new)
app.command()(cli_scenarios.schema)
app.command()(cli_scenarios.explain)
app.command()(cli_upgrade.upgrade)
app.command()(cli_client.client)
app.command()(cli_export.export)
app.add_typer(cli_spark.app, name="spark")

# What typer raises for wrong options; it has a copy of click inside and exports only this child.
_WrongOptions: type[Exception] = typer.BadParameter.__bases__[0]
_INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt


def main() -> None:
    guard_streams()
    sys.exit(status_after(_guarded(lambda: app(standalone_mode=False))))


def _guarded(command: Callable[[], Any]) -> int:
    """Errors that a user can mend: one sentence, the documented status, no traceback."""
    # kazoo logs every connection that closes; the harness closes them on purpose.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    # A shell gives what it starts in the background an ignored SIGINT: all signals end us.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_as_by_ctrl_c()
    try:
        result = command()
        if result == _INTERRUPTED:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else int(Exit.AGREES)
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except _WrongOptions as error:
        error.show()  # type: ignore[attr-defined]
        _say_where_from(error)
        return int(Exit.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        output.err.print(interrupted.said(), markup=False)
        return int(Exit.UNKNOWN)
    except Exception as error:
        status = status_of(error)
        if output.is_verbose():
            traceback.print_exc(file=output.err.file)
        why = spark_watch.trouble() if status is None else None
        if why is not None:
            output.err.print(f"neaptide: {why}", markup=False)
            return int(Exit.UNKNOWN)
        if status is None:  # a bug of ours: its traceback, even while Spark has standard error
            traceback.print_exc(file=output.err.file)
            return Exit.BUG
        output.err.print(f"neaptide: {error}", markup=False)
        return int(status)


def _say_where_from(error: Any) -> None:
    """Of a value that is wrong and that the command line did not give."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None:
        return
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "DEFAULT_MAP":
        file = context.find_root().obj
        where = "a variable NEAPTIDE_…" + (f", or {file.path}" if file else "")
        output.err.print(
            f"neaptide: nothing on the command line says so, but {where}", markup=False
        )


if __name__ == "__main__":
    main()
