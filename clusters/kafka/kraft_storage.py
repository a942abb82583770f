"""What `kafka.tools.StorageTool format` leaves in a log directory, without a JVM for every node.

`meta.properties` is written here. `bootstrap.checkpoint`, which gives a new quorum the feature
levels that it begins with, is made by that Kafka's own StorageTool, once for each version and
choice of features, and kept in the cache: only it knows its version's levels.
Source: KIP-631, KIP-858 (directory.id), KIP-966 (eligible.leader.replicas.version).
"""

from __future__ import annotations

import subprocess
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.errors import UsageError
from neaptide.clusters.properties import write_properties

BOOTSTRAP: Final = "bootstrap.checkpoint"
ELR_FEATURE: Final = "eligible.leader.replicas.version"
FEATURES: Final = (ELR_FEATURE,)  # what a scenario may set, among its settings
_TIMEOUT_S: Final = 60


def kafka_uuid(name: str) -> str:
    """Always the same for a name, as Kafka writes ids."""
    return urlsafe_b64encode(uuid5(NAMESPACE_URL, name).bytes).decode().rstrip("=")


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
        "directory.id": kafka_uuid(f"neaptide/{node}"),
    }
    file.write_text(write_properties(values), encoding="utf-8")


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
        made = _format(java, class_path, version, features, Path(scratch))
        made.replace(stored)
    return stored


def _format(
    java: Path, class_path: str, version: str, features: Mapping[str, str], scratch: Path
) -> Path:
    settings = scratch / "server.properties"
    values = {
        "process.roles": "controller",
        "node.id": "0",
        "controller.quorum.voters": "0@127.0.0.1:1",
        "listeners": "CONTROLLER://127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(scratch / "data"),
    }
    settings.write_text(write_properties(values), encoding="utf-8")
    levels = [part for name, level in features.items() for part in ("--feature", f"{name}={level}")]
    tool = (str(java), "-XX:TieredStopAtLevel=1", "-cp", class_path, "kafka.tools.StorageTool")
    done = subprocess.run(
        [*tool, "format", "-t", CLUSTER_ID, "-c", str(settings), *levels],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    made = scratch / "data" / BOOTSTRAP
    if done.returncode != 0 or not made.exists():
        said = done.stdout.strip().splitlines() or ["nothing"]
        raise UsageError(
            f"Apache Kafka {version} cannot be formatted with"
            f" {', '.join(f'{n}={v}' for n, v in features.items()) or 'its defaults'}: {said[-1]}"
        )
    return made
