"""Where fetched and built things of this project live: `$XDG_CACHE_HOME/neaptide`."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "neaptide"
