"""Keeps pyarrow from importing pandas in a process that only writes tables.

pyarrow looks for pandas whenever it makes an array, for whom it might be one of theirs. That import
costs half a second of a processor, in which an event loop stands still. Where it is not found,
pyarrow does without: nothing of ours in such a process asks for pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used in this process", name=fullname)
        return None


def forgo_pandas() -> None:
    """For this process, before its first table."""
    sys.meta_path.insert(0, _NoPandas())
