"""What `kafka.tools.StorageTool format` leaves in a log directory, without a JVM for every node.

`meta.properties` is written here. The feature levels that a new quorum begins with are made by that
Kafka's own StorageTool, once for each version and choice of features, and kept in the cache: only
it knows its version's levels. They are in `bootstrap.checkpoint` of every node, and from 4.4 on in
the first snapshot of the metadata log, which only voters have. That snapshot also names the voters
where they can change; it has the addresses of one run then.
Source: KIP-631, KIP-853 (voters), KIP-858 (directory.id), KIP-966 (eligible.leader.replicas),
KAFKA-19648 (no bootstrap.checkpoint).
"""

from __future__ import annotations

import shutil
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
FIRST_SNAPSHOT: Final = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
ELR_FEATURE: Final = "eligible.leader.replicas.version"
FEATURES: Final = (ELR_FEATURE,)  # what a scenario may set, among its settings
_LEVELS: Final = (BOOTSTRAP, FIRST_SNAPSHOT)  # where feature levels may be: the first that is there
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


def feature_levels(java: Path, class_path: str, version: str, features: Mapping[str, str]) -> Path:
    """The file, made if it is not in the cache; its name ends in that of the file that a node has.

    Raises UsageError for levels that Kafka refuses.
    """
    chosen = "".join(f"+{name}={level}" for name, level in sorted(features.items()))
    directory = cache_directory() / "kraft"
    places = {name: directory / f"{version}{chosen}.{Path(name).name}" for name in _LEVELS}
    for stored in places.values():
        if stored.exists():
            return stored
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        quorum = {"node.id": "0", "controller.quorum.voters": "0@127.0.0.1:1"}
        made = _format(java, class_path, version, quorum, _options(features), Path(scratch))
        return made.replace(places[str(made.relative_to(Path(scratch) / "data"))])


def voters_snapshot(
    java: Path,
    class_path: str,
    version: str,
    features: Mapping[str, str],
    voters: Mapping[int, str],
    scratch: Path,
) -> Path:
    """The file. `voters`: host:port at which each is reached, by node. Raises UsageError."""
    scratch.mkdir(parents=True)
    named = ",".join(f"{n}@{at}:{kafka_uuid(_directory_name(n))}" for n, at in voters.items())
    first = next(iter(voters))
    quorum = {"node.id": str(first), "controller.quorum.bootstrap.servers": voters[first]}
    options = ["--initial-controllers", named, *_options(features)]
    _format(java, class_path, version, quorum, options, scratch)
    return scratch / "data" / FIRST_SNAPSHOT


def put_levels(levels: Path, data: Path, *, is_voter: bool) -> None:
    """Into the directory of a node, if it is to have them."""
    if levels.name.endswith(BOOTSTRAP):
        shutil.copyfile(levels, data / BOOTSTRAP)
    elif is_voter:
        put_first_snapshot(levels, data)


def put_first_snapshot(snapshot: Path, data: Path) -> None:
    file = data / FIRST_SNAPSHOT
    file.parent.mkdir(exist_ok=True)
    shutil.copyfile(snapshot, file)


def _options(features: Mapping[str, str]) -> list[str]:
    return [f"--feature={name}={level}" for name, level in features.items()]


def _format(
    java: Path,
    class_path: str,
    version: str,
    quorum: Mapping[str, str],
    options: Sequence[str],
    scratch: Path,
) -> Path:
    """Leaves a formatted log directory, `data`, in an empty directory; the file with the levels."""
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
    said = done.stdout.strip().splitlines() or ["nothing"]
    asked = " ".join(options).replace("--feature=", "") or "its defaults"
    if done.returncode != 0:
        raise UsageError(f"Apache Kafka {version} cannot be formatted with {asked}: {said[-1]}")
    for name in _LEVELS:
        if (scratch / "data" / name).exists():
            return scratch / "data" / name
    raise UsageError(
        f"Apache Kafka {version} is formatted in a way that neaptide does not know: its StorageTool"
        f" wrote neither {' nor '.join(_LEVELS)}. Take an older version."
    )
