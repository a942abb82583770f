"""Takes orders and writes them to the topic `orders`."""

from __future__ import annotations

from typing import Any


class OrderDesk:
    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.accepted: list[str] = []

    def place(self, order: str) -> None:
        """Accepted once the broker has acknowledged it."""
        self._producer.produce("orders", value=order, on_delivery=self._on_delivery)
        self._producer.poll(0)

    def finish(self, timeout_s: float) -> int:
        """How many orders nobody has answered yet."""
        return int(self._producer.flush(timeout_s))

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.accepted.append(message.value().decode())
