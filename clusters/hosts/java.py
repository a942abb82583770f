"""Finds a Java that is new enough. Not an installer.

Java 17 is what Spark and the ZooKeeper in its jars need; every Kafka that neaptide runs works
on it too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from neaptide.clusters.errors import MissingPartError

JAVA_VERSION_MIN: Final = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def parse_java_version(text: str) -> int | None:
    """The feature version in what `java -version` prints: 8 for "1.8.0_402", 17 for "17.0.15"."""
    found = _VERSION.search(text)
    return int(found.group(1)) if found else None


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` of JAVA_HOME, else of PATH; MissingPartError if there is none, or an old one."""
    env = os.environ if environment is None else environment
    path = _candidate(env)
    done = subprocess.run(
        [str(path), "-version"], capture_output=True, text=True, check=False, timeout=60
    )
    version = parse_java_version(done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        raise MissingPartError(
            f"{path} does not run: reinstall Java {JAVA_VERSION_MIN} or set JAVA_HOME to another"
        )
    if version < JAVA_VERSION_MIN:
        raise MissingPartError(
            f"{path} is Java {version}: install Java {JAVA_VERSION_MIN} or newer,"
            " or set JAVA_HOME to one"
        )
    return path


def _candidate(env: Mapping[str, str]) -> Path:
    if home := env.get("JAVA_HOME"):
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise MissingPartError(
                f"JAVA_HOME is {home}, but there is no bin/java in it: set it to a Java"
                f" {JAVA_VERSION_MIN} or unset it"
            )
        return path
    found = shutil.which("java", path=env.get("PATH", ""))
    if found is None:
        raise MissingPartError(
            f"Java is missing: install Java {JAVA_VERSION_MIN} or newer, or set JAVA_HOME to one"
        )
    return Path(found)
