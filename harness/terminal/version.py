"""The versions of neaptide and of what a run is made with, as installed."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

try:
    VERSION = version("neaptide")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0+unknown"

_PARTS: Final = ("aiokafka", "confluent-kafka", "kafka-python", "pyspark")


def parts() -> Mapping[str, str]:
    """What a run was made with, so far as it is installed."""
    found = {"Linux": platform.release(), "Python": platform.python_version()}
    for name in _PARTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
