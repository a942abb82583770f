"""The keys of one table of a scenario file, taken one by one, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from neaptide.clusters.errors import UsageError
from neaptide.clusters.nearest import did_you_mean, nearest


class ScenarioError(UsageError):
    """A scenario file that says something that cannot be."""


@dataclass(slots=True)
class Fields:
    """The keys of one table; what is left over at the end is a mistake."""

    values: dict[str, Any]
    complain: Callable[[str], ScenarioError]
    tried: list[str] = field(default_factory=list)

    def take(self, key: str, kind: type, default: Any = ...) -> Any:
        self.tried.append(key)
        if key not in self.values:
            if default is ...:
                raise self.complain(f"{key!r} is missing{self._misspelt(key)}")
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
            unknown = next(iter(self.values))
            near = did_you_mean(unknown, self.tried)
            raise self.complain(f"{unknown!r} is not known here{near}")

    def _misspelt(self, key: str) -> str:
        """What stands there in its place, if it looks like it."""
        near = nearest(key, self.values)
        return f"; is {near!r} there in its place?" if near else ""


def _kind_name(kind: type) -> str:
    names = {
        str: "a text",
        int: "a whole number",
        bool: "true or false",
        dict: "a table",
        list: "a list",
    }
    return names.get(kind, kind.__name__)
