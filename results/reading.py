"""Reads a JSON file of a run, whoever has made it: a regular file, of a size and depth that a run
has. The one place that does, so that no file makes a command wait, or fail in another way.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from neaptide.results.errors import RunUnreadableError

_BYTES_MAX: Final = 256 * 1024 * 1024
DEPTH_MAX: Final = 100  # a schedule has some ten


def read_json(path: Path) -> Any:
    """Raises FileNotFoundError where there is none, RunUnreadableError for all else."""
    try:
        text = read_file(path).decode("utf-8")
        document = json.loads(text)
    except FileNotFoundError:
        raise
    except RecursionError:
        raise RunUnreadableError(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSONDecodeError are such
        raise RunUnreadableError(f"{path} cannot be read: {error}") from error
    if _is_deep(document):
        raise RunUnreadableError(f"{path} cannot be read: it is nested too deeply")
    return document


def read_file(path: Path, bytes_max: int = _BYTES_MAX) -> bytes:
    """Never waits, as a FIFO would have it. Raises OSError, ValueError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError("it is too large")
    return data


def _is_deep(document: Any) -> bool:
    level = [document]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True
