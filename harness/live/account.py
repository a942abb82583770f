"""What a run can say of itself whatever becomes of it: what was written, assigned, and went wrong.

Kept while it runs, because a run that is cut short has nobody to return it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from neaptide.results.run import Assigned, Incident, Run, Written


@dataclass(slots=True)
class Account:
    """`on_started` is called once, when all that a run needs is there and its work begins;
    `on_incident` as soon as one is known."""

    on_started: Callable[[Account], None] = lambda _: None
    on_incident: Callable[[Incident], None] = lambda _: None
    written: dict[str, dict[str, Written]] = field(default_factory=dict)
    assigned: tuple[Assigned, ...] = ()
    incidents: tuple[Incident, ...] = ()
    has_started: bool = False

    def started(self, assigned: Iterable[Assigned]) -> None:
        self.assigned = tuple(assigned)
        self.has_started = True
        self.on_started(self)

    def wrote(self, table: str, writer: str, written: Written) -> None:
        self.written.setdefault(table, {})[writer] = written

    def note(self, incident: Incident | None) -> None:
        """None, and what is known already, change nothing."""
        if incident is not None and incident not in self.incidents:
            self.incidents = (*self.incidents, incident)
            self.on_incident(incident)

    def of(self, run: Run) -> Run:
        """The record with all that is known; a writer counts when it is closed."""
        return replace(
            run,
            written=self.written or None,
            assigned=self.assigned,
            incidents=self.incidents,
        )
