"""The keys of one table of a scenario file, taken one by one, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neaptide.clusters.errors import UsageError


class ScenarioError(UsageError):
    """A scenario file that says something that cannot be."""


@dataclass(slots=True)
class Fields:
    """The keys of one table; what is left over at the end is a mistake."""

    values: dict[str, Any]
    complain: Callable[[str], ScenarioError]

    def take(self, key: str, kind: type, default: Any = ...) -> Any:
        if key not in self.values:
            if default is ...:
                raise self.complain(f"{key!r} is missing")
            return default
        value = self.values.pop(key)
        good = isinstance(value, kind) and (kind is not int or not isinstance(value, bool))
        if kind is float and isinstance(value, int):
            return float(value)
        if not good:
            raise self.complain(f"{key!r} must be {_kind_name(kind)}, not {value!r}")
        return value

    def choose(self, key: str, allowed: tuple[str, ...], default: Any = ...) -> Any:
        value = self.take(key, str, default)
        if value is not None and value not in allowed:
            raise self.complain(f"{key} = {value!r} must be one of {', '.join(allowed)}")
        return value

    def done(self) -> None:
        if self.values:
            raise self.complain(f"{next(iter(self.values))!r} is not known here")


def _kind_name(kind: type) -> str:
    names = {
        str: "a text",
        int: "a whole number",
        bool: "true or false",
        dict: "a table",
        list: "a list",
    }
    return names.get(kind, kind.__name__)
