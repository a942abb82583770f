"""Keeps libraries from importing what a process of ours has no use for.

pyarrow imports numpy when it is imported, and looks for pandas whenever it makes an array, for whom
it might be one of theirs; kio prepares its types for Hypothesis. That is most of what a small
process takes to start, and an event loop stands still meanwhile. Where they are not found, both do
without.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

EVERYTHING: Final = frozenset({"hypothesis", "numpy", "pandas"})
PANDAS: Final = frozenset({"pandas"})


class _Forgone(MetaPathFinder):
    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self.names:
            raise ModuleNotFoundError(f"{fullname} is not used in this process", name=fullname)
        return None


def forgo(names: frozenset[str] = EVERYTHING) -> None:
    """For this process, before pyarrow and kio are imported, or make their first array."""
    if not any(isinstance(one, _Forgone) and one.names >= names for one in sys.meta_path):
        sys.meta_path.insert(0, _Forgone(names))
