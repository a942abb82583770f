"""What is asked again of Kafka's admin API, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from neaptide.clusters.kafka import admin
from neaptide.clusters.kafka.members import RefusedChangeError


class Clients:
    """A client for each call; the first so many cannot ask."""

    def __init__(self, why: str, failing: int) -> None:
        self.why, self.failing, self.made = why, failing, 0

    def __call__(self, **_: Any) -> Clients:
        self.made += 1
        return self

    def alter_configs(self, resources: object) -> None:
        if self.made <= self.failing:
            raise KafkaConnectionError(self.why)

    def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize(
    ("why", "failing", "made", "is_done"),
    [
        ("111 ECONNREFUSED", 0, 1, True),
        ("111 ECONNREFUSED", 3, 4, True),
        ("111 ECONNREFUSED", 99, 6, False),
        ("socket disconnected", 1, 1, False),  # somebody may have it
    ],
)
def test_who_does_not_listen_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, why: str, failing: int, made: int, is_done: bool
) -> None:
    clients = Clients(why, failing)
    monkeypatch.setattr(admin, "KafkaAdminClient", clients)
    asked = admin.AdminMembers("127.0.0.1:1")
    if is_done:
        asked.set("t", {"segment.ms": "1"})
    else:
        with pytest.raises(RefusedChangeError, match=f"alter_configs: .*{why}"):
            asked.set("t", {"segment.ms": "1"})
    assert clients.made == made
