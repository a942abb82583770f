"""Kafka's admin API, by kafka-python: `members.Members` where Kafka has all of it.

Imported only by who uses it: kafka-python takes a second to be imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaConnectionError, KafkaError

from neaptide.clusters.kafka.members import RefusedChangeError, Replicas

_REQUEST_MS: Final = 8_000
# A broker that has just started is known before it listens: then another one is asked.
_ASKED_AGAIN: Final = 5
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


class _NotSentError(RefusedChangeError):
    """Nobody has the request."""


class AdminMembers:
    """By the admin API. A client for each call: brokers come and go."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def reassign(self, topic: str, replicas: Replicas) -> None:
        asked = {TopicPartition(topic, p): list(brokers) for p, brokers in replicas.items()}
        answers = self._ask("alter_partition_reassignments", asked, timeout_ms=_REQUEST_MS)
        for partition, error in answers.items():
            if error is not None:
                raise RefusedChangeError(f"{partition}: {error.__name__}")

    def elect(self, topic: str, partitions: Sequence[int], *, unclean: bool = False) -> None:
        wanted = {topic: list(partitions)}
        kind = _UNCLEAN if unclean else _PREFERRED
        self._ask("elect_leaders", kind, wanted, timeout_ms=_REQUEST_MS, raise_errors=False)

    def add_partitions(self, topic: str, replicas: Replicas) -> None:
        self._ask("create_partitions", {topic: len(replicas)}, timeout_ms=_REQUEST_MS)

    def set(self, topic: str, settings: Mapping[str, str | None]) -> None:
        changes = {
            name: ("DELETE", None) if value is None else ("SET", value)
            for name, value in settings.items()
        }
        self._ask("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, topic, changes)])

    def create(self, topic: str, replicas: Replicas) -> None:
        assignments = {p: list(brokers) for p, brokers in replicas.items()}
        self._ask("create_topics", {topic: {"assignments": assignments}}, timeout_ms=_REQUEST_MS)

    def delete(self, topic: str) -> None:
        self._ask("delete_topics", [topic], timeout_ms=_REQUEST_MS)

    def _ask(self, what: str, *arguments: Any, **named: Any) -> Any:
        for _ in range(_ASKED_AGAIN):
            try:
                return self._ask_once(what, *arguments, **named)
            except _NotSentError:
                continue
        return self._ask_once(what, *arguments, **named)

    def _ask_once(self, what: str, *arguments: Any, **named: Any) -> Any:
        try:
            client = KafkaAdminClient(
                bootstrap_servers=self._bootstrap.split(","), request_timeout_ms=_REQUEST_MS
            )
        except (KafkaError, OSError) as error:
            raise RefusedChangeError(f"{what}: nobody answers: {error}") from None
        try:
            return getattr(client, what)(*arguments, **named)
        except KafkaConnectionError as error:
            kind = _NotSentError if "ECONNREFUSED" in str(error) else RefusedChangeError
            raise kind(f"{what}: {error}") from None
        # ValueError: a setting that the broker which was asked did not describe (seen amid faults)
        except (KafkaError, OSError, ValueError) as error:
            raise RefusedChangeError(f"{what}: {type(error).__name__}: {error}") from None
        finally:
            client.close()
