"""A Spark that stays: who may lease a session of it, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from neaptide.clusters.hosts.identity import ProcessIdentity
from neaptide.harness.checking import warm_spark
from neaptide.harness.checking.warm_spark import Kept
from tests.results.losing_run import write_losing_run

NEAPTIDE = (sys.executable, "-m", "neaptide.harness.cli")
WITHIN_S = 240


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a server of this user, with the record of one that this process keeps."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = warm_spark.directory()
    assert directory is not None
    directory.mkdir()
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    write(directory, Kept(me, 15_002, "secret", 60.0, "1g", time.time(), warm=True))
    return directory


def write(directory: Path, record: Kept) -> None:
    (directory / "spark.json").write_text(json.dumps(asdict(record)))


def test_a_session_belongs_to_one_command_at_a_time(of: Path) -> None:
    first, second = warm_spark.lease(), warm_spark.lease()
    assert first is not None
    assert second is not None
    assert first.remote != second.remote
    assert warm_spark.use_of(of).leased == 2
    first.release()
    again = warm_spark.lease()
    assert again is not None
    assert again.remote == first.remote  # its Python workers are warm
    second.release()
    again.release()
    assert warm_spark.use_of(of).leased == 0


@pytest.mark.slow
def test_a_session_that_was_not_given_back_is_never_used_again(of: Path) -> None:
    code = "from neaptide.harness.checking.warm_spark import lease; print(lease().remote)"
    lost = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lease = warm_spark.lease()
    assert lease is not None
    assert lease.remote != lost.stdout.strip()
    assert lease.remote.partition(";session_id")[0] in lost.stdout  # the same server
    lease.release()


def test_no_more_sessions_than_there_are(of: Path) -> None:
    leases = [warm_spark.lease() for _ in range(5)]
    assert [lease is None for lease in leases] == [False] * 4 + [True]
    for lease in leases[:4]:
        assert lease is not None
        lease.release()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: replace(record, keeper=replace(record.keeper, pid=2**22 - 1)),
        lambda record: None,
    ],
    ids=["its keeper is dead", "the record is no JSON"],
)
def test_without_a_server_there_is_no_lease(of: Path, spoil: Callable[[Kept], Kept | None]) -> None:
    record = warm_spark.kept(of)
    assert record is not None
    spoiled = spoil(record)
    if spoiled is None:
        (of / "spark.json").write_text("[1")
    else:
        write(of, spoiled)
    assert warm_spark.lease() is None


def test_a_directory_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "neaptide").symlink_to(tmp_path / "elsewhere")
    assert warm_spark.home() is None
    (tmp_path / "neaptide").unlink()
    found = warm_spark.home()
    assert found is not None
    assert found.stat().st_mode & 0o777 == 0o700


# --- a real one ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Directories of its own: the Spark that all tests use is not touched."""
    base = tmp_path_factory.mktemp("warm")
    (base / "runtime").mkdir()
    return {
        **os.environ,
        "XDG_RUNTIME_DIR": str(base / "runtime"),
        "NEAPTIDE_STATE": str(base / "state"),
        "NEAPTIDE_RUNS": str(base / "runs"),
    }


def neaptide(env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NEAPTIDE, *words], env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


@pytest.fixture(scope="module")
def kept(env: Mapping[str, str]) -> Iterator[dict[str, object]]:
    started = neaptide(env, "spark", "start", "--memory", "2g", "--json")
    assert started.returncode == 0, started.stderr
    yield json.loads(started.stdout)
    neaptide(env, "spark", "stop")


def of_keeper(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children(recursive=True)
    return [one for one in children if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.proof
@pytest.mark.spark
def test_checks_lease_its_session_and_give_it_back(
    kept: Mapping[str, int], env: Mapping[str, str], tmp_path: Path
) -> None:
    assert kept["started"]
    run = write_losing_run(tmp_path / "run")
    for _ in range(2):
        done = neaptide(env, "check", str(run), "--json")
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["runs"][0]["anomalies"]["lost-write"] == 1
    [session] = Path(env["XDG_RUNTIME_DIR"]).glob("neaptide/spark-*/session-*")
    assert session.read_text() == "0 clean"  # always the same one, and always given back
    [row] = json.loads(neaptide(env, "spark", "status", "--json").stdout)["sparks"]
    assert (row["pid"], row["leased"], row["of_this_code"]) == (kept["pid"], 0, True)
    second = json.loads(neaptide(env, "spark", "start", "--json").stdout)
    assert (second["started"], second["pid"]) == (False, kept["pid"])


@pytest.mark.proof
@pytest.mark.spark
def test_its_token_is_only_where_this_user_can_read_it(
    kept: Mapping[str, int], env: Mapping[str, str]
) -> None:
    [record] = Path(env["XDG_RUNTIME_DIR"]).glob("neaptide/spark-*/spark.json")
    token = json.loads(record.read_text())["token"]
    assert record.stat().st_mode & 0o077 == 0
    listening = []
    for process in (psutil.Process(kept["pid"]), *of_keeper(kept["pid"])):
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker that has ended meanwhile
            assert token not in " ".join(process.cmdline())
            found = process.net_connections()
            listening += [one.laddr.ip for one in found if one.status == "LISTEN"]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
    refused = neaptide(env, "check", "latest", "--remote", f"{kept['address']}/;token=wrong")
    assert refused.returncode in (64, 69), refused.stderr
    assert "wrong" not in refused.stderr


@pytest.mark.proof
@pytest.mark.spark
def test_after_its_keeper_was_killed_its_java_ends_and_checks_start_their_own(
    kept: Mapping[str, int], env: Mapping[str, str], tmp_path: Path
) -> None:
    """The last of the three: it ends the server."""
    left = of_keeper(kept["pid"])
    assert left
    os.kill(kept["pid"], signal.SIGKILL)
    run = write_losing_run(tmp_path / "run")
    done = neaptide(env, "check", str(run), "--json")
    assert done.returncode == 1, done.stderr
    _, alive = psutil.wait_procs(left, timeout=60)
    assert not alive
    none = neaptide(env, "spark", "status")
    assert none.returncode == 69
    assert neaptide(env, "spark", "stop").stdout.strip() == "No Spark is kept."


@pytest.mark.spark
@pytest.mark.proof
def test_one_that_nobody_uses_ends_by_itself(env: Mapping[str, str]) -> None:
    started = neaptide(env, "spark", "start", "--memory", "2g", "--idle", "1s", "--json")
    assert started.returncode == 0, started.stderr
    pid = json.loads(started.stdout)["pid"]
    if psutil.pid_exists(pid):
        psutil.wait_procs([psutil.Process(pid)], timeout=WITHIN_S)
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("words", [("--idle", "soon"), ("--memory", "much")])
def test_what_cannot_be_is_refused_in_a_sentence(env: Mapping[str, str], words: list[str]) -> None:
    refused = neaptide(env, "spark", "start", *words)
    assert refused.returncode == 64
    said = refused.stderr.strip().splitlines()[-1]
    assert words[0] in said
    assert words[1] in said
