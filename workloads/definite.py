"""What a client error says of the operation: surely not done (fail), or not known (info).

When in doubt it is info: a fail that was done after all would be a false alarm, an info never is.
NOT_LEADER_FOR_PARTITION is in doubt: a leader that steps down answers so to requests whose records
it has appended already, and its successor may have them. So is every refusal that depends on the
state of a broker: after NOT_LEADER_FOR_PARTITION librdkafka sends again whatever its retries are,
and does not report it; the successor's NOT_ENOUGH_REPLICAS is then about a record that it has.
The names are librdkafka's, without a leading underscore where they are its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.workloads.libraries.model import NOT_SENT

# Only with retries switched off: a retried request may have been appended by its first attempt.
DEFINITE: Final[Mapping[str, str]] = {
    "MSG_SIZE_TOO_LARGE": "refused: larger than max.message.bytes",
    "INVALID_MSG": "refused: corrupt",
    "INVALID_MSG_SIZE": "refused: its size is invalid",
    "INVALID_REQUIRED_ACKS": "refused: no such acks",
    "_QUEUE_FULL": "never left the client",
    "_UNKNOWN_TOPIC": "never left the client",
    "_UNKNOWN_PARTITION": "never left the client",
    NOT_SENT: "never left the client",
}
# Definite for a producer with a transactional id alone: another one has taken its id, and what an
# earlier attempt may have appended is of a transaction that was aborted for that.
FENCED: Final = frozenset({"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "_FENCED"})


def completion_type(error: str | None, *, has_transactions: bool = False) -> str:
    """`ok`, `fail` or `info`, by Jepsen's meaning."""
    if error is None:
        return "ok"
    is_definite = error in DEFINITE or (has_transactions and error in FENCED)
    return "fail" if is_definite else "info"
