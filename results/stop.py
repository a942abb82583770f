"""`stop.json` in a run directory: somebody asks a run under load to end before its time, and why.

Not an interruption: the run heals, waits until the replicas are level, reads everything, and is
judged, as if its time were over. Whoever follows a run writes the file, the run looks for it.

The rule: that the file is there is the request, whatever is in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from neaptide.results.errors import RunUnreadableError
from neaptide.results.reading import read_json
from neaptide.results.store import write_json

STOP_FILE: Final = "stop.json"


def ask_to_stop(run_directory: Path, reason: str) -> None:
    """Raises StoreError."""
    write_json(run_directory / STOP_FILE, {"reason": reason})


def asked_to_stop(run_directory: Path) -> str | None:
    """The reason; None: nobody asks."""
    path = run_directory / STOP_FILE
    try:
        return str(read_json(path)["reason"])
    except FileNotFoundError:
        return None
    except (OSError, RunUnreadableError, LookupError, TypeError):
        return f"{path} is there, without a reason"
