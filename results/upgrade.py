"""What changes from one version of a system to another: which scenarios hold on each.

Put together from a matrix of the two (`neaptide.results.matrix`). Not here: what is played, and how
it looks.

The rule: one run that breaks a promise is enough, and all must hold for *held*. Where neither is
so, nothing is proved of that version, and nothing is said of the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from neaptide.results.matrix import Cell, Matrix

Change = Literal["new", "open", "unknown", "fixed", "held"]
# The worst first. Each with a sign, as a cell of the matrix has one, and with what it means.
CHANGES: Final[Mapping[Change, tuple[str, str]]] = {
    "new": ("✗", "held before, and does not hold after"),
    "open": ("✗", "holds on neither"),
    "unknown": ("?", "on one of the two nothing was proved"),
    "fixed": ("✓", "did not hold before, and holds after"),
    "held": ("✓", "holds on both"),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One scenario on both versions."""

    scenario: str
    title: str
    kind: str  # of what does not hold: bug, by design or client
    before: Cell
    after: Cell

    @property
    def source(self) -> tuple[str, ...]:
        """The documents that describe it, such as KAFKA-18991."""
        return (*self.before.repetitions, *self.after.repetitions)[0].source

    @property
    def is_bug(self) -> bool:
        return "bug" in self.kind

    @property
    def change(self) -> Change:
        match _holds(self.before), _holds(self.after):
            case (None, _) | (_, None):
                return "unknown"
            case False, after:
                return "fixed" if after else "open"
            case _, after:
                return "held" if after else "new"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a run proved nothing."""
        both = (*self.before.repetitions, *self.after.repetitions)
        unknown = (each for each in both if each.observed == "unknown")
        return tuple(dict.fromkeys(reason for each in unknown for reason in each.reasons))

    def to_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "title": self.title,
            "source": list(self.source),
            "kind": self.kind,
            "before": counts(self.before),
            "after": counts(self.after),
            "runs": [str(e.run) for c in (self.before, self.after) for e in c.repetitions],
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class Upgrade:
    """`not_played`: by scenario, why it was not."""

    before: str
    after: str
    compared: tuple[Compared, ...]
    not_played: Mapping[str, str]
    matrix: Matrix

    def of(self, change: Change) -> list[Compared]:
        """Those that are bugs come first."""
        found = [one for one in self.compared if one.change == change]
        return sorted(found, key=lambda one: not one.is_bug)

    def to_json(self) -> dict[str, Any]:
        return {
            "from": self.before,
            "to": self.after,
            **{change: [one.to_json() for one in self.of(change)] for change in CHANGES},
            "not_played": dict(self.not_played),
        }


def compare(matrix: Matrix, before: str, after: str, not_played: Mapping[str, str]) -> Upgrade:
    """`before` and `after`: systems of the matrix."""
    compared = [
        Compared(name, title, kind, first, second)
        for name, title, kind in matrix.scenarios
        if (first := matrix.cell(name, before)) and (second := matrix.cell(name, after))
    ]
    return Upgrade(before, after, tuple(compared), not_played, matrix)


def counts(cell: Cell) -> dict[str, int]:
    """How many runs had which outcome."""
    return dict(Counter(each.observed for each in cell.repetitions))


def _holds(cell: Cell) -> bool | None:
    if any(outcome not in ("held", "unknown") for outcome in cell.observed):
        return False
    return True if cell.observed == ("held",) else None
