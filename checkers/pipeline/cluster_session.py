"""A Spark session whose work is done elsewhere: by a cluster, or behind Spark Connect.

Not the cluster: that is started and stopped by whoever owns it. What is set here is what
`session` sets; the rest comes from `spark-defaults.conf` (`SPARK_CONF_DIR`) or the server.

The rule: who does not answer is reported in one sentence within a bounded time. Spark itself would
wait for executors for ever.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from neaptide.checkers.pipeline.given import given_settings
from neaptide.checkers.pipeline.limits import SEES_FILES, TASK_MEMORY
from neaptide.checkers.pipeline.own_code import send_code
from neaptide.checkers.pipeline.session import forget_connect, local_session
from neaptide.results.errors import MissingToolError, SparkUnreachableError

CONNECT_WITHIN_S: Final = 5.0
WORK_WITHIN_S: Final = 120.0
ANSWERS_WITHIN_S: Final = 20.0  # one that has only to answer, and has no executors to wait for
CONNECT_PORT: Final = 15_002
_LOOPBACK: Final = "127.0.0.1"
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_MASTER: Final = re.compile(r"local(\[.+\])?|spark://[^\s/,]+:\d+(,[^\s/,]+:\d+)*|yarn|k8s://\S+")
_REMOTE: Final = re.compile(r"(?P<server>sc://(?P<host>[^\s/:;]+)(:(?P<port>\d+))?)(/\S*)?")
_HOST: Final = ("spark.driver.host", "spark.driver.bindAddress")
# On a cluster, who runs it knows these better.
_LEFT_TO_USER: Final = (*_HOST, TASK_MEMORY, "spark.driver.memory", "spark.ui.enabled")
_MEMORY: Final = (TASK_MEMORY, "spark.driver.memory")
_CONNECT_NEEDS: Final = ("grpc", "grpc_status", "google.rpc", "zstandard")

Address = tuple[str, int]


def is_master(text: str) -> bool:
    """Whether Spark has masters of this form."""
    return _MASTER.fullmatch(text) is not None


def is_remote(text: str) -> bool:
    """Whether this is the address of a Spark Connect server."""
    return _REMOTE.fullmatch(text) is not None


def master_session(
    master: str,
    *,
    rows: int = 0,
    memory: str | None = None,
    java_options: Sequence[str] = (),
    cores_max: int | None = None,
) -> SparkSession:
    """A session on a master of any kind; `cores_max` is for a standalone cluster (None: all that
    are free). Raises SparkUnreachableError."""
    if master.startswith("local"):
        return local_session(master, rows=rows, memory=memory, java_options=java_options)
    given = given_settings()
    with _reported_as(master):
        spark = local_session(
            master,
            rows=rows,
            memory=memory,
            address=driver_address(master, given),
            java_options=java_options,
            cores_max=cores_max,
            given=[
                name
                for name in _LEFT_TO_USER
                if name in given and (memory is None or name not in _MEMORY)
            ],
        )
    try:
        _see_it_work(spark, master, lambda: spark.range(1).collect())
        send_code(spark)
    except BaseException:
        spark.stop()
        raise
    return spark


def driver_address(master: str, given: Collection[str] = ()) -> str | None:
    """Where the executors of a master find this process; None: where Spark, or who has `given` it,
    says. Raises SparkUnreachableError.

    Of YARN and Kubernetes nobody here knows at which address its machines see this one.
    """
    if any(name in given for name in _HOST) or not master.startswith("spark://"):
        return None
    pairs = (pair.rpartition(":") for pair in master.removeprefix("spark://").split(","))
    addresses = [(host, int(port)) for host, _, port in pairs]
    return _own_address(first_that_listens("Spark master", master, addresses))


def check_connect() -> None:
    """Raises MissingToolError where this Python has not what Spark Connect needs."""
    for needed in _CONNECT_NEEDS:
        if importlib.util.find_spec(needed.partition(".")[0]) is None:
            raise MissingToolError(
                "Spark Connect needs more packages: pip install 'neaptide[connect]'."
            )


def connect_session(remote: str, *, has_code: bool = False) -> SparkSession:
    """A session of a Spark Connect server. Raises SparkUnreachableError or MissingToolError.

    `has_code`: it is one of this machine and this code, and is set as our own sessions are.
    """
    check_connect()
    matched = _REMOTE.fullmatch(remote)
    assert matched is not None
    name = matched["server"]  # what follows may be a secret
    address = (matched["host"], int(matched["port"] or CONNECT_PORT))
    first_that_listens("Spark Connect server", name, [address])
    with _reported_as(name):
        spark: SparkSession = SparkSession.Builder().remote(remote).getOrCreate()
    try:
        if has_code:  # its executors are in it
            _see_it_work(spark, name, lambda: spark.conf.get(_TIME_ZONE), ANSWERS_WITHIN_S)
            spark.conf.set(SEES_FILES, "true")
        else:
            _see_it_work(spark, name, lambda: spark.range(1).collect())
            send_code(spark)
            spark.conf.set(_TIME_ZONE, "UTC")
    except BaseException:
        leave(spark)
        raise
    return spark


def leave(spark: SparkSession) -> None:
    """Go from a session that others go on with; Spark's own `stop` would end it on the server."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    if isinstance(spark, ConnectSession):
        spark.release_session_on_close = False
    spark.stop()
    forget_connect()


def first_that_listens(kind: str, name: str, addresses: Sequence[Address]) -> Address:
    """One of several masters is enough: the others stand by. Raises SparkUnreachableError."""
    why = ""
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_WITHIN_S).close()
            return address
        except OSError as error:
            why = error.strerror or str(error)
    raise SparkUnreachableError(f"No {kind} answers at {name} ({why}): start it, or name another.")


def _own_address(of: Address) -> str:
    """The address of this machine that those at the other one can answer to; nothing is sent."""
    with socket.socket(_family(of), socket.SOCK_DGRAM) as probe:
        probe.connect(of)
        own = str(probe.getsockname()[0])
    return _LOOPBACK if ipaddress.ip_address(own).is_loopback else own


def _family(of: Address) -> socket.AddressFamily:
    return socket.getaddrinfo(*of, type=socket.SOCK_DGRAM)[0][0]


def _see_it_work(
    spark: SparkSession, name: str, work: Callable[[], object], within_s: float = WORK_WITHIN_S
) -> None:
    """Have something done. Whoever does not answer is not waited for."""
    refused: list[Exception] = []

    def try_it() -> None:
        try:
            work()
        except Exception as error:  # of Spark, its gateway or its wire
            refused.append(error)

    worker = threading.Thread(target=try_it, daemon=True)
    worker.start()
    worker.join(within_s)
    if worker.is_alive():
        raise SparkUnreachableError(
            f"Spark at {name} has done nothing for {within_s:g} s: "
            "has it workers with cores and memory to spare?"
        )
    with _reported_as(name):
        for error in refused:
            raise error


@contextmanager
def _reported_as(name: str) -> Iterator[None]:
    try:
        yield
    except (MissingToolError, SparkUnreachableError):
        raise
    except Exception as error:  # of Spark, its gateway or its wire: whatever they failed with
        raise SparkUnreachableError(
            f"Spark at {name} refuses to work: {_first_line(error)}."
        ) from error


def _first_line(error: Exception) -> str:
    """What it is about; the gateway puts a line before that says nothing."""
    lines = [line.strip(" :.") for line in str(error).splitlines()]
    useful = [line for line in lines if line and not line.startswith("An error occurred while")]
    return useful[0] if useful else type(error).__name__
