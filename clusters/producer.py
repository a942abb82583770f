"""What is asked of the producers of a run, in whichever world: the same words everywhere.

Not acks, which each record has, and no client's own names for these: see workloads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from neaptide.clusters.broker.replication.generation import Generation

# More than five may be in flight to nobody who remembers five batches (KAFKA-5494).
MAX_IN_FLIGHT_IDEMPOTENT: Final = 5


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """`retries` of one record; an idempotent producer tries until the record's time is over."""

    idempotence: bool = False
    max_in_flight: int = 1
    retries: int = 0
    retry_backoff_ms: int = 50

    def problem(self) -> str | None:
        """What cannot be, as the end of a sentence."""
        if self.max_in_flight < 1:
            return "max_in_flight must be 1 or more"
        if self.idempotence and self.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
            return f"with idempotence, max_in_flight is at most {MAX_IN_FLIGHT_IDEMPOTENT}"
        if self.retries < 0:
            return "retries must be 0 or more"
        if self.retry_backoff_ms < 1:
            return "retry_backoff_ms must be 1 or more"
        return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def in_flight_of(rules: Generation) -> int:
    """As many requests of an idempotent producer as its leader knows again: one on 0.11."""
    if rules.idempotence is None:
        return MAX_IN_FLIGHT_IDEMPOTENT
    return rules.idempotence.duplicates_known
