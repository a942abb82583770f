"""The version of neaptide, as installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("neaptide")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0+unknown"
