"""Checks runs that are over: Spark judges them, each gets its verdict and its report.

A session takes seconds to start; `SparkStart` begins with it while the runs are still going.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from neaptide.clusters.errors import UsageError
from neaptide.harness.checking import spark_watch
from neaptide.harness.checking.spark_java import SparkHome, SparkJava
from neaptide.harness.checking.spark_watch import SparkWatch
from neaptide.harness.checking.warm_spark import Lease, lease
from neaptide.harness.terminal import output
from neaptide.harness.terminal.version import VERSION
from neaptide.results.errors import MissingToolError, SparkUnreachableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from neaptide.checkers.material import Material
    from neaptide.checkers.verdict import Options, RunVerdict


_EDN_ROW_BYTES: Final = 60
_PARQUET_ROW_BYTES: Final = 6
_MEMORY: Final = re.compile(r"[1-9][0-9]*[mg]")
SPARK_REMOTE: Final = "SPARK_REMOTE"  # Spark's own


class SparkStart:
    """A Spark session that is being started on a thread of its own; stopped after the `with`."""

    def __init__(
        self,
        master: str | None = None,
        remote: str | None = None,
        *,
        rows: int = 0,
        memory: str | None = None,
        cores_max: int | None = None,
        after_s: float = 0.0,
    ) -> None:
        """`master`: None: that of Spark's own settings, or two cores of this machine; `rows`: how
        much it is for; `memory`: what it may take, as "4g"; `cores_max`: how many cores of a
        standalone cluster (None: all that are free); `after_s`: it begins so much later, or when
        the session is asked for."""
        self._master = master
        self._rows = rows
        self._memory = memory
        self._cores_max = cores_max
        # What is asked for comes before what is in the environment, and that before what is warm.
        own = master is not None or memory is not None
        self._remote = remote or (None if own else remote_of_environment())
        self._may_lease = not own and self._remote is None
        self._lease: Lease | None = None
        self._session: SparkSession | None = None
        self._java: SparkJava | None = None
        self._remembers = True  # what Java has loaded is what every Spark loads
        self._home: SparkHome | None = None
        self._watch: SparkWatch | None = None
        self._error: Exception | None = None
        self._after_s = after_s
        self._is_due = threading.Event()  # it is wanted, or never will be
        self._is_called_off = False
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        from neaptide.checkers.pipeline.cluster_session import connect_session, master_session
        from neaptide.checkers.pipeline.given import MASTER, adds_classes, given_settings

        self._is_due.wait(self._after_s)
        if self._is_called_off:
            return
        try:
            given = given_settings()
            master = self._master or given.get(MASTER) or "local[2]"
            self._remembers = not adds_classes(given)
            if self._remote is not None:
                self._session = connect_session(self._remote)
            elif MASTER in given or adds_classes(given) or not self._take_warm():
                os.environ.pop(SPARK_REMOTE, None)  # with it, Spark takes no master
                self._java = SparkJava.found()
                archived = self._java.options if self._java is not None else ()
                self._home = SparkHome()
                self._watch = SparkWatch(_say)
                with self._home.starting():
                    self._session = master_session(
                        master,
                        rows=self._rows,
                        memory=self._memory,
                        java_options=(*archived, *self._home.java_options),
                        cores_max=self._cores_max,
                    )
        except Exception as error:
            why = spark_watch.trouble()
            self._error = error if why is None else SparkUnreachableError(why)

    def _take_warm(self) -> bool:
        """Lease a session of the Spark that is kept; False: there is none, or it does not serve."""
        from neaptide.checkers.pipeline.cluster_session import connect_session
        from neaptide.checkers.pipeline.session import COMPILED_ROWS

        if not self._may_lease or self._rows > COMPILED_ROWS:
            return False
        self._lease = lease()
        if self._lease is None:
            return False
        self._watch = SparkWatch(_say, self._lease.keeper)
        try:
            self._session = connect_session(self._lease.remote, has_code=True)
        except (MissingToolError, SparkUnreachableError) as error:
            _say(f"The Spark that is kept is passed over. {error}")
            self._lease.close()
            self._lease = None
            self._watch.close()
        return self._session is not None

    def session(self) -> SparkSession:
        """Waits until it is there. Raises what its start raised."""
        self._is_due.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session

    def stop(self) -> None:
        self._is_called_off = True  # if it has not begun
        self._is_due.set()
        self._thread.join()
        self._end_watch()
        if self._session is None:
            return
        if self._lease is not None:
            self._give_back(self._lease, self._session)
            return
        try:
            if self._java is not None and self._remembers:
                self._java.remember(self._session, _say)
            self._session.stop()
        except Exception as error:  # of a process that is gone, perhaps for want of memory
            output.err.print(f"Spark did not stop in order: {_first_line(error)}", markup=False)
        _forget_connect()
        if self._home is not None:
            self._home.close()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _give_back(self, lease: Lease, session: SparkSession) -> None:
        from neaptide.checkers.pipeline.cluster_session import leave

        self._session = None
        try:
            leave(session)
            lease.release()
        finally:
            lease.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Whoever is interrupted does not wait for a start that may take a minute."""
        if kind is None:
            self.stop()
            return
        if issubclass(kind, Exception):
            spark_watch.trouble()  # it may be why
        self._end_watch()
        if self._session is not None:
            try:
                self._session.interruptAll()
                self._session.stop()
            except Exception as error:  # what ended the check may have ended Spark, too
                output.err.print(f"Spark did not stop in order: {_first_line(error)}", markup=False)
            _forget_connect()
        if self._lease is not None:
            self._lease.close()


def _forget_connect() -> None:
    from neaptide.checkers.pipeline.session import forget_connect

    forget_connect()


def remote_of_environment() -> str | None:
    """The Spark Connect server that Spark's own variable names. Raises UsageError."""
    remote = os.environ.get(SPARK_REMOTE) or None
    if remote is None:
        return None
    from neaptide.checkers.pipeline.cluster_session import is_remote

    if not is_remote(remote):
        raise UsageError(
            f"{SPARK_REMOTE} must be of the form sc://HOST:PORT, or not be set."  # may have a token
        )
    return remote


def check_spark(master: str | None, remote: str | None, memory: str | None = None) -> None:
    """Raises UsageError for what Spark cannot take."""
    if memory is not None and not _MEMORY.fullmatch(memory):
        raise UsageError(f"--memory {memory!r} must be a size such as 900m or 4g.")
    if master is None and remote is None:
        return
    from neaptide.checkers.pipeline.cluster_session import is_master, is_remote

    if master is not None and remote is not None:
        raise UsageError("Give either --master or --remote, not both.")
    if master is not None and not is_master(master):
        raise UsageError(
            f"--master {master!r} must be local[N], spark://HOST:PORT, yarn or k8s://ADDRESS"
            " (Spark Connect, sc://HOST, is --remote)."
        )
    if remote is not None and not is_remote(remote):
        raise UsageError(f"--remote {remote!r} must be of the form sc://HOST:PORT.")


def rows_of(names: Sequence[str]) -> int:
    """About how many rows there are to check, by the size of their files: nothing is opened, since
    Spark's Java waits for the answer. What is elsewhere has none. Raises RunNotFoundError."""
    from neaptide.checkers.histories.edn import SUFFIX
    from neaptide.results.store import find_run

    rows = 0
    for name in names:
        if name.endswith(SUFFIX):
            rows += Path(name).stat().st_size // _EDN_ROW_BYTES if Path(name).is_file() else 0
            continue
        files = find_run(name).glob("*/*.parquet") if "://" not in name else []
        rows += sum(map(_size, files)) // _PARQUET_ROW_BYTES
    return rows


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # a link to nowhere, or to itself: whoever opens it says so
        return 0


def find_runs(names: Sequence[str]) -> dict[str, Path]:
    """The directories of those that are runs on this machine, by name.

    Raises RunNotFoundError where one is not there, a history of Jepsen's included.
    """
    from neaptide.checkers.histories.edn import SUFFIX
    from neaptide.checkers.pipeline.remote import is_remote_path
    from neaptide.results.errors import RunNotFoundError
    from neaptide.results.store import find_run

    local = [name for name in names if not is_remote_path(name)]
    missing = [name for name in local if name.endswith(SUFFIX) and not Path(name).is_file()]
    if missing:
        raise RunNotFoundError(f"There is no file {missing[0]}.")
    return {name: find_run(name) for name in local if not name.endswith(SUFFIX)}


def open_runs(spark: SparkStart, names: Sequence[str]) -> list[Material]:
    """Runs by their names; a history of Jepsen's is made into one first.

    What is there but cannot be read disturbs no other: it is a run without anything but a reason.
    """
    from neaptide.checkers.histories.edn import SUFFIX
    from neaptide.checkers.material import open_run, unreadable
    from neaptide.checkers.pipeline.remote import is_remote_path, open_remote
    from neaptide.results.errors import NeaptideError, RunUnreadableError, StoreError
    from neaptide.results.store import runs_directory

    known = find_runs(names)

    def opened(name: str) -> Material:
        if name.endswith(SUFFIX):
            return open_run(_imported(spark.session(), name))
        if is_remote_path(name):
            return open_remote(spark.session(), name, runs_directory())
        return open_run(known[name])

    def opened_or_why(name: str) -> Material:
        try:
            return opened(name)
        except (RunUnreadableError, StoreError) as error:
            return unreadable(Path(name).absolute(), f"{str(error).rstrip('.')}.")
        except NeaptideError:  # nothing of the kind can be opened
            raise
        except Exception as error:  # whatever is wrong with its files
            why = f"{name} cannot be opened ({type(error).__name__}: {_first_line(error)})."
            return unreadable(Path(name).absolute(), why)

    return [opened_or_why(name) for name in names]


def _imported(spark: SparkSession, name: str) -> Path:
    """The run that a history becomes, which lies here or elsewhere."""
    from neaptide.checkers.histories.reader import import_history
    from neaptide.checkers.pipeline.remote import copy_history, is_remote_path
    from neaptide.results.errors import RunUnreadableError

    utc = datetime.now(UTC)
    if not is_remote_path(name):
        return import_history(spark, Path(name), version=VERSION, utc=utc)
    with tempfile.TemporaryDirectory(prefix="neaptide-history-") as scratch:
        copy = Path(scratch, name.rpartition("/")[2])
        copy_history(spark, name, copy)
        try:
            return import_history(spark, copy, version=VERSION, utc=utc)
        except RunUnreadableError as error:
            raise RunUnreadableError(str(error).replace(str(copy), name)) from error


def write_history(spark: SparkStart, run: Path, path: Path) -> None:
    from neaptide.checkers.histories.writer import export_history

    export_history(spark.session(), run, path)


def load() -> None:
    """Have at hand what a check needs: loading it takes a second, while which Spark starts."""
    import pandas  # noqa: F401 (PySpark asks whether it is there)

    import neaptide.results.report  # noqa: F401


def check_and_report(
    spark: SparkSession,
    runs: Sequence[Path | Material],
    *,
    options: Options | None = None,
    plots: bool = False,
    time_limit_s: float | None = None,
) -> list[RunVerdict]:
    """Verdicts in the order of the runs; every run that can be read gets a report."""
    from neaptide.checkers.check import check_materials
    from neaptide.checkers.material import open_run
    from neaptide.checkers.pipeline.series import write_series
    from neaptide.results.errors import NeaptideError
    from neaptide.results.report import write_report

    opened = [open_run(run) if isinstance(run, Path) else run for run in runs]
    once = list({material.directory: material for material in opened}.values())
    verdicts = check_materials(
        spark, once, time_limit_s=time_limit_s, options=options, trouble=spark_watch.trouble
    )
    if plots:
        try:
            write_series(spark, once)
        except Exception as error:  # whatever Spark failed with, the verdicts stand
            output.err.print(f"There are no plots: {_first_line(error)}", markup=False)
    for material in once:
        try:
            if verdicts[material.directory].verdict == "anomalous":
                _leave_out(material.directory)
            write_report(material.directory)
        except NeaptideError:
            continue  # its verdict says why it cannot be read
        except Exception as error:  # what a stranger has put into its files: the verdict stands
            _say(f"{material.name} has no report ({type(error).__name__}: {_first_line(error)}).")
    return [verdicts[material.directory] for material in opened]


def _leave_out(directory: Path) -> None:
    """Which step of a losing schedule matters, for the report."""
    from neaptide.harness.scenarios.left_out import leave_out_of_losing

    try:
        leave_out_of_losing(directory)
    except Exception as error:  # whatever the simulation failed with, the verdict stands
        _say(f"No step of {directory.name} was left out: {_first_line(error)}")


def _say(text: str) -> None:
    output.err.print(text, markup=False)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
