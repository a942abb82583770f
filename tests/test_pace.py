"""What an unmarked test may take, the order of files, and how `make proof` goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import pace, proof
from tests.proof import proof_but

PLUGINS = ("-p", "tests.pace", "-p", "tests.proof", "-p", "no:cacheprovider", "-p", "no:neaptide")
QUICK_AND_SLOW = """
import time, pytest
def test_quick(): pass
def test_slow(): time.sleep(0.3)
@pytest.mark.live
def test_live(): time.sleep(0.3)
@pytest.fixture
def late(): time.sleep(0.3)
def test_waits_for_its_fixture(late): pass
def test_fails(): time.sleep(0.3); assert False
"""


# --- what a test may take ------------------------------------------------------------------------


def test_an_unmarked_test_above_the_limit_fails_and_the_others_do_not(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_it=QUICK_AND_SLOW)
    with monkeypatch.context() as patched:
        patched.setattr(pace, "LIMIT_S", 0.2)
        patched.setattr(pace, "slowness", lambda: 1.0)  # this machine may be busy
        done = pytester.runpytest_inprocess(*PLUGINS, "-rA")
    done.assert_outcomes(passed=3, failed=2)
    done.stdout.fnmatch_lines(["*test_it.py::test_slow took 0.* s, and a test without a mark*"])
    done.stdout.fnmatch_lines(["FAILED test_it.py::test_fails - assert False"])


@pytest.mark.parametrize("mark", sorted(pace.SLOW))
def test_a_mark_allows_more_and_says_so(mark: str) -> None:
    assert pace.too_slow("t", 3.1, ["parametrize", mark]) is None
    assert f"`{mark}`" in (pace.too_slow("t", 3.1, ["parametrize"]) or "")
    assert pace.too_slow("t", 3.0, []) is None


def test_time_in_which_another_process_has_the_core_is_not_the_tests(tmp_path: Path) -> None:
    counted = tmp_path / "schedstat"
    assert pace.waited_for_a_core_s(counted) == 0.0
    counted.write_text("700000347 7475960324 533\n")
    assert pace.waited_for_a_core_s(counted) == pytest.approx(7.476, abs=0.001)


def test_of_a_process_that_a_test_waits_for_its_work_counts() -> None:
    before = pace.Clocks(100.0, 5.0, 30.0, 2.0)
    assert pace.Clocks(110.0, 11.0, 31.0, 2.0).since(before) == 4.0
    assert pace.Clocks(110.0, 11.0, 31.0, 2.5).since(before) == 1.5


def test_the_limit_grows_with_what_a_fixed_sum_takes_and_never_shrinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "_SUM_S", 1e-6)
    assert pace.slowness() > 100
    monkeypatch.setattr(pace, "_SUM_S", 1e6)
    assert pace.slowness() == 1.0


# --- in which order files come -------------------------------------------------------------------


def test_the_longest_file_comes_first_and_stays_together() -> None:
    tests = ["a.py::1", "b.py::1", "a.py::2", "c.py::1", "b.py::2", "d.py::1"]
    order = pace.longest_first(tests, {"b.py": 9.0, "c.py": 2.0})
    assert [tests[at] for at in order] == [
        *("b.py::1", "b.py::2", "c.py::1", "a.py::1", "a.py::2", "d.py::1")
    ]
    assert pace.longest_first(tests[:1], {}) == [0]


def test_the_files_of_a_folder_stay_together_and_the_long_folders_come_first() -> None:
    tests = ["x/a.py::1", "y/b.py::1", "x/c.py::1", "y/d.py::1", "z/e.py::1"]
    order = pace.longest_first(tests, {"x/c.py": 1.0, "y/b.py": 50.0, "y/d.py": 70.0})
    assert [tests[at] for at in order] == [
        *("y/d.py::1", "y/b.py::1", "x/c.py::1", "x/a.py::1", "z/e.py::1")
    ]


def test_what_a_whole_run_took_is_kept_beside_that_of_the_other_kind(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_a="def test_1(): pass\ndef test_2(): pass", test_b="import no_such")
    path = pytester.path / "build" / "durations.json"
    pace.keep("proof", [("test_p.py::x[a::b]", 1.26), ("test_p.py::y", 1.0)], path)
    pace.keep("test", [("test_gone.py::x", 1.0)], path)
    keeping = (*PLUGINS, "--keep-durations", str(path))
    pytester.runpytest_inprocess(*keeping)
    assert pace.kept("test", path) == {"test_gone.py": 1.0}  # interrupted by an error of test_b
    pytester.runpytest_inprocess(*keeping, "--ignore=test_b.py")
    assert json.loads(path.read_text()) == {"proof": {"test_p.py": 2.3}, "test": {"test_a.py": 0.0}}


def test_each_file_with_kept_durations_exists() -> None:
    for kind in ("test", "proof"):
        assert [file for file in pace.kept(kind) if not (proof.REPOSITORY / file).exists()] == []


# --- make proof ----------------------------------------------------------------------------------

SOME_FAIL = """
import pathlib, pytest
mended = pathlib.Path("mended")
pytestmark = pytest.mark.proof
def test_1(): pass
def test_10(): assert mended.exists()
@pytest.fixture
def ends_badly():
    yield
    assert mended.exists()
def test_2(ends_badly): pass
@pytest.mark.skipif(not mended.exists(), reason="not there")
def test_3(): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", proof_but([0, 2], 0))
def test_what_has_passed_is_not_played_again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Not what failed, nor what could not be taken down, nor what was skipped."""
    monkeypatch.setenv("PYTHONPATH", str(proof.REPOSITORY))
    pytester.makepyfile(test_it=SOME_FAIL)
    pytester.makeini("[pytest]\nmarkers =\n  proof: it\n")
    record = pytester.path / "record"
    play = (*PLUGINS, "-m", "proof", "--proof-record", str(record), f"-n{processes}")
    run = pytester.runpytest_subprocess if processes else pytester.runpytest_inprocess
    done = run(*play)
    done.assert_outcomes(passed=2, failed=1, errors=1, skipped=1, deselected=0)
    assert [nodeid for nodeid, _ in proof.recorded(record)] == ["test_it.py::test_1"]
    (pytester.path / "mended").touch()
    run(*play).assert_outcomes(passed=3)
    assert len(proof.recorded(record)) == 4
    if not processes:
        assert run(*play).ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_line_that_was_cut_short_has_not_passed(tmp_path: Path) -> None:
    record = tmp_path / "record"
    assert proof.recorded(record) == []
    record.write_text("1.5 a.py::test[x y]\n0.5 a.py::te")
    assert proof.recorded(record) == [("a.py::test[x y]", 1.5)]


def test_what_is_left_is_said_in_minutes(tmp_path: Path) -> None:
    record = tmp_path / "record"
    kept = {"a.py": 600.0, "b.py": 120.0}
    assert "0 tests have passed for this tree; the others take about 12 minutes" in (
        proof.announced(record, kept)
    )
    record.write_text("300.0 a.py::1\n200.0 b.py::1\n")
    assert "2 tests have passed for this tree; the others take about 5 minutes" in (
        proof.announced(record, kept)
    )


def test_a_changed_tree_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "part" / "__pycache__").mkdir(parents=True)
    (tmp_path / "one").write_text("1")
    (tmp_path / "part" / "two").write_text("2")
    parts = ("one", "part")
    first = proof.fingerprint(tmp_path, parts)
    (tmp_path / "part" / "__pycache__" / "three").write_text("3")
    (tmp_path / "elsewhere").write_text("4")
    assert proof.fingerprint(tmp_path, parts) == first
    (tmp_path / "part" / "two").rename(tmp_path / "part" / "2")
    second = proof.fingerprint(tmp_path, parts)
    (tmp_path / "one").write_text("5")
    assert len({first, second, proof.fingerprint(tmp_path, parts)}) == 3


def test_all_parts_of_the_product_are_there() -> None:
    assert [part for part in proof.PARTS if not (proof.REPOSITORY / part).exists()] == []
