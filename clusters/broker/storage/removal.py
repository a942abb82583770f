"""Removing what was deleted: large files take long, so a broker has a thread do it.

What is to be removed has a name already by which the next start would remove it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from neaptide.clusters.broker.storage.errors import StorageError

Remove = Callable[[Sequence[Path]], None]


def remove_now(doomed: Sequence[Path]) -> None:
    """Files, and directories with all that is in them. Raises StorageError."""
    for path in doomed:
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except FileNotFoundError:  # with its directory, which was removed meanwhile
            continue
        except OSError as error:
            raise StorageError(path.parent, str(error)) from error
