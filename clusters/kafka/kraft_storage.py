"""What `kafka.tools.StorageTool format` leaves in a log directory, without a JVM for every node.

`meta.properties` is written here. `bootstrap.checkpoint`, which gives a new quorum the feature
levels that it begins with, is made by that Kafka's own StorageTool, once for each version and
choice of features, and kept in the cache: only it knows its version's levels. So is the first
snapshot of the metadata log, which names the voters where they can change; it has the addresses of
one run.
Source: KIP-631, KIP-853 (voters), KIP-858 (directory.id), KIP-966 (eligible.leader.replicas).
"""

from __future__ import annotations

import subprocess
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.errors import UsageError
from neaptide.clusters.properties import write_properties
from neaptide.results.store import write_text

BOOTSTRAP: Final = "bootstrap.checkpoint"
VOTERS: Final = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
ELR_FEATURE: Final = "eligible.leader.replicas.version"
FEATURES: Final = (ELR_FEATURE,)  # what a scenario may set, among its settings
_TIMEOUT_S: Final = 60


def kafka_uuid(name: str) -> str:
    """Always the same for a name, as Kafka writes ids."""
    return urlsafe_b64encode(uuid5(NAMESPACE_URL, name).bytes).decode().rstrip("=")


def directory_id(node: int) -> UUID:
    """Of a node's log directory."""
    return uuid5(NAMESPACE_URL, _directory_name(node))


def _directory_name(node: int) -> str:
    return f"neaptide/{node}"


CLUSTER_ID: Final = kafka_uuid("neaptide")


def write_meta_properties(directory: Path, node: int) -> None:
    """Formats an empty directory; one that has been formatted is left as it is."""
    file = directory / "meta.properties"
    if file.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    values = {
        "version": "1",
        "cluster.id": CLUSTER_ID,
        "node.id": str(node),
        "directory.id": kafka_uuid(_directory_name(node)),
    }
    write_text(file, write_properties(values))


def bootstrap_checkpoint(
    java: Path, class_path: str, version: str, features: Mapping[str, str]
) -> Path:
    """The file, made if it is not in the cache. Raises UsageError for levels that Kafka refuses."""
    chosen = "".join(f"+{name}={level}" for name, level in sorted(features.items()))
    directory = cache_directory() / "kraft"
    stored = directory / f"{version}{chosen}.{BOOTSTRAP}"
    if stored.exists():
        return stored
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        levels = [f"--feature={name}={level}" for name, level in features.items()]
        quorum = {"node.id": "0", "controller.quorum.voters": "0@127.0.0.1:1"}
        _format(java, class_path, version, quorum, levels, Path(scratch))
        (Path(scratch) / "data" / BOOTSTRAP).replace(stored)
    return stored


def voters_checkpoint(
    java: Path, class_path: str, version: str, voters: Mapping[int, str], scratch: Path
) -> Path:
    """The file. `voters`: host:port at which each is reached, by node. Raises UsageError."""
    scratch.mkdir(parents=True)
    named = ",".join(f"{n}@{at}:{kafka_uuid(_directory_name(n))}" for n, at in voters.items())
    first = next(iter(voters))
    quorum = {"node.id": str(first), "controller.quorum.bootstrap.servers": voters[first]}
    _format(java, class_path, version, quorum, ["--initial-controllers", named], scratch)
    return scratch / "data" / VOTERS


def _format(
    java: Path,
    class_path: str,
    version: str,
    quorum: Mapping[str, str],
    options: Sequence[str],
    scratch: Path,
) -> None:
    """Leaves a formatted log directory, `data`, in an empty directory."""
    settings = scratch / "server.properties"
    values = {
        "process.roles": "controller",
        "listeners": "CONTROLLER://127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(scratch / "data"),
        **quorum,
    }
    write_text(settings, write_properties(values))
    tool = (str(java), "-XX:TieredStopAtLevel=1", "-cp", class_path, "kafka.tools.StorageTool")
    done = subprocess.run(
        [*tool, "format", "-t", CLUSTER_ID, "-c", str(settings), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0 or not (scratch / "data" / BOOTSTRAP).exists():
        said = done.stdout.strip().splitlines() or ["nothing"]
        raise UsageError(
            f"Apache Kafka {version} cannot be formatted with"
            f" {' '.join(options).replace('--feature=', '') or 'its defaults'}: {said[-1]}"
        )
