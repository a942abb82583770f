"""The pytest plugin in a project of its own: what is collected, and what a result looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from neaptide.harness.testing import items
from neaptide.harness.testing.findings import Judged
from neaptide.harness.testing.lab import Judge
from neaptide.results.store import write_run
from tests.results.one_run import RUN

pytest_plugins = ["pytester"]

SCENARIO = """
title = "An acknowledged record stays"

[cluster]
brokers = ["A", "B", "C"]
topics.t = { assignment = [["A", "B", "C"]] }

[[step]]
produce = { record = "m1", acks = "all" }
until = "acked(m1)"

[expect]
held = ["neaptide:2.0", "neaptide:2.1"]
"""
Fake = Callable[..., list[list[str]]]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(pytester.path / "runs"))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    (pytester.path / "stays.neaptide.toml").write_text(SCENARIO)
    return pytester


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """In place of playing and judging: each play takes the next of these verdicts. Returns the
    list in which the systems of each batch are noted."""

    def use(*verdicts: tuple[str, str], own: tuple[str, ...] = ()) -> list[list[str]]:
        left, played = list(verdicts), list[list[str]]()

        def play_batch(batch: Iterable[items.ScenarioItem], settings: Any) -> None:
            played.append([])
            for item in batch:
                played[-1].append(item.name)
                verdict, outcome = left.pop(0)
                reasons = ("Nothing was acknowledged.",) if verdict == "unknown" else ()
                item.judged = Judged(Path("/nowhere"), verdict, outcome, {}, reasons, own)

        monkeypatch.setattr(items, "play_batch", play_batch)
        return played

    return use


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *options)


def test_a_scenario_file_is_one_test_for_each_system_of_which_it_expects_something(
    project: pytest.Pytester,
) -> None:
    result = run(project, "--collect-only", "-q")
    result.stdout.fnmatch_lines(
        ["stays.neaptide.toml::neaptide:2.0", "stays.neaptide.toml::neaptide:2.1"]
    )
    assert result.ret == 0
    assert "neaptide:0.10" not in result.stdout.str()


def test_the_systems_are_what_the_option_says_and_else_what_the_ini_file_says(
    project: pytest.Pytester,
) -> None:
    project.makeini("[pytest]\nneaptide_systems =\n    neaptide:4.0\n")
    by_ini = run(project, "--collect-only", "-q").stdout
    by_ini.fnmatch_lines(["stays.neaptide.toml::neaptide:4.0"])
    by_option = run(project, "--collect-only", "-q", "--neaptide-system", "neaptide:0.11").stdout
    by_option.fnmatch_lines(["stays.neaptide.toml::neaptide:0.11"])
    by_option.no_fnmatch_line("*4.0")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = ", "*broken.neaptide.toml: is not valid TOML*"),
        (SCENARIO.replace("acked(m1)", "acked(m2)"), "*broken.neaptide.toml:8: step 1: *m2*"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    project: pytest.Pytester, text: str, sentence: str
) -> None:
    (project.path / "broken.neaptide.toml").write_text(text)
    result = run(project, "broken.neaptide.toml")
    result.stdout.fnmatch_lines([sentence])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == 2


@pytest.mark.parametrize(
    ("option", "value"), [("--neaptide-system", "neaptide:9"), ("--neaptide-host", "moon")]
)
def test_an_option_that_cannot_be_is_a_usage_error(
    project: pytest.Pytester, option: str, value: str
) -> None:
    result = run(project, option, value)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{value}*must be one of*"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_as_expected_passes_and_what_was_lost_fails_at_the_line_that_expects(
    project: pytest.Pytester, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(("valid", "held"), ("anomalous", "lost"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run(project, "--junitxml", "out.xml")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "expected held, was lost",
            "neaptide: nowhere: anomalous (lost)",
            "  report: /nowhere/report.html",
        ]
    )
    result.stdout.fnmatch_lines(["::error file=stays.neaptide.toml,line=13,title=*"])
    result.stdout.no_fnmatch_line("*items.py*")
    xml = (project.path / "out.xml").read_text()
    assert 'name="neaptide_verdict" value="anomalous"' in xml


def test_without_github_there_are_no_annotations(project: pytest.Pytester, fake: Fake) -> None:
    fake(("anomalous", "lost"), ("valid", "held"))
    run(project).stdout.no_fnmatch_line("::error*")


def test_an_unknown_is_tried_again_as_often_as_asked_and_an_anomaly_is_not(
    project: pytest.Pytester, fake: Fake
) -> None:
    one = ("--neaptide-system", "neaptide:2.1", "--neaptide-retries-unknown", "2")
    played = fake(("unknown", "unknown"), ("unknown", "unknown"), ("valid", "held"))
    run(project, *one).assert_outcomes(passed=1)
    assert len(played) == 3

    played = fake(*[("unknown", "unknown")] * 4)
    result = run(project, *one)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no evidence*", "*not proved: Nothing was acknowledged."])
    assert len(played) == 3

    played = fake(("anomalous", "lost"), ("valid", "held"))
    run(project, *one).assert_outcomes(failed=1)
    assert len(played) == 1


def test_a_batch_is_played_at_once_and_each_test_has_its_own_result(
    project: pytest.Pytester, fake: Fake
) -> None:
    played = fake(("valid", "held"), ("anomalous", "lost"))
    run(project, "--neaptide-batch", "8").assert_outcomes(passed=1, failed=1)
    assert played == [["neaptide:2.0", "neaptide:2.1"]]

    played = fake(("valid", "held"), ("valid", "held"))
    run(project).assert_outcomes(passed=2)
    assert played == [["neaptide:2.0"], ["neaptide:2.1"]]


def test_what_a_check_of_the_project_finds_fails_the_test(
    project: pytest.Pytester, fake: Fake
) -> None:
    fake(("valid", "held"), ("valid", "held"), own=("Order 7 was shipped twice.",))
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["  Order 7 was shipped twice."])


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, project: pytest.Pytester) -> Path:
    """A run that Spark need not judge: the verdict of everything is *lost*."""
    (project.path / "stays.neaptide.toml").unlink()
    directory = project.path / "runs" / "mine"
    directory.mkdir(parents=True)
    write_run(directory, RUN)

    def judge(_: Judge, runs: Sequence[Path]) -> list[Judged]:
        return [Judged(run, "anomalous", "lost", {}, ()) for run in runs]

    monkeypatch.setattr(Judge, "judge", judge)
    return directory


def test_every_test_that_had_a_run_judged_has_its_properties_in_junit_files(
    project: pytest.Pytester, judged: Path
) -> None:
    """Whether it passes or fails; one that judged nothing has none."""
    project.makepyfile(
        f"""
        from pathlib import Path
        RUN = Path({str(judged)!r})

        def test_passes(neaptide):
            assert neaptide.check(RUN).outcome == "lost"

        def test_fails(neaptide):
            neaptide.assert_valid(RUN)

        def test_judges_nothing(neaptide):
            assert neaptide.system

        def test_of_somebody_else():
            pass
        """
    )
    result = run(project, "--junitxml", "out.xml")
    result.assert_outcomes(passed=3, failed=1)
    cases = ElementTree.parse(project.path / "out.xml").iter("testcase")
    found = {
        case.attrib["name"]: [(p.attrib["name"], p.attrib["value"]) for p in case.iter("property")]
        for case in cases
    }
    said = [
        ("neaptide_system", "neaptide:0.10"),
        ("neaptide_verdict", "anomalous"),
        ("neaptide_outcome", "lost"),
        ("neaptide_run", str(judged)),
    ]
    assert found == {
        "test_passes": said,
        "test_fails": said,
        "test_judges_nothing": [],
        "test_of_somebody_else": [],
    }


@pytest.mark.parametrize(
    ("asks", "sentence"),
    [
        ('cluster("neaptide:9")', "neaptide: There is no system 'neaptide:9'; it must be one of*"),
        ("cluster(brokers=0)", "neaptide: brokers=0 must be 1 to 9."),
        ('cluster(settings={"min.isr": 1})', "neaptide: settings: *no * setting 'min.isr'*"),
        ('run("apend")', "neaptide: There is no workload 'apend'; did you mean 'append'[?]"),
        ('run(nemesis="boom")', "neaptide: There is no fault 'boom'; it must be one of*"),
        ('run(acks="all", idempotence=True, system="neaptide:0.10")', "neaptide: *idempotent*"),
        ('play("none.toml")', "neaptide: none.toml: cannot be read*"),
    ],
)
def test_what_a_test_asks_wrongly_is_one_sentence_and_its_line(
    project: pytest.Pytester, judged: Path, asks: str, sentence: str
) -> None:
    """Nothing is started for it, no Spark either."""
    file = project.makepyfile(
        f"""
        def test_asks(neaptide):
            neaptide.{asks}
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "start", lambda _: pytest.fail("Spark was started"))
        result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{file}:2", sentence])
    for line in ("*Traceback*", "*neaptide/harness*", "*def test_asks*"):
        result.stdout.no_fnmatch_line(line)


def test_a_mistake_of_the_test_itself_keeps_its_traceback(
    project: pytest.Pytester, judged: Path
) -> None:
    project.makepyfile("def test_asks(neaptide):\n    neaptide.system.nothing()")
    result = run(project)
    result.stdout.fnmatch_lines(["*def test_asks*", "*AttributeError*"])


def test_a_system_of_the_ini_file_that_is_none_is_one_sentence(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nneaptide_systems =\n    neaptide:9\n")
    result = run(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: There is no system 'neaptide:9'; it must be one of*"])
    for said in (result.stdout, result.stderr):
        said.no_fnmatch_line("*Traceback*")


@pytest.mark.spark
def test_in_the_simulation_a_file_is_played_and_judged_without_any_broker(
    project: pytest.Pytester,
) -> None:
    """Nothing is faked: Spark judges both in one job, and a hook of the project sees the runs."""
    lost = Path(__file__).parents[2] / "harness" / "scenarios" / "hw-truncation-loss.toml"
    (project.path / "stays.neaptide.toml").unlink()
    (project.path / "hw.neaptide.toml").write_text(
        lost.read_text()
        .replace("[expect]", '[expect]\ndiverged = ["neaptide:4.0"]')
        .replace('"neaptide:0.11+"', '"neaptide:0.11"')
    )
    project.makeconftest(
        """
        def pytest_neaptide_check(run):
            print("checked", run.name, (run / "run.json").exists())
            return []
        """
    )
    options = [f"--neaptide-system=neaptide:{version}" for version in ("0.10", "0.11", "4.0")]
    result = project.runpytest_subprocess(
        "-p",
        "no:cacheprovider",
        "--neaptide-host=simulation",
        "--neaptide-batch=4",
        "--neaptide-seed=5",
        *options,
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "neaptide seed: 5",
            "expected diverged, was held",
            "neaptide: hw on neaptide:4.0, seed 5:*",
        ]
    )
