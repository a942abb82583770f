"""Conditional writes to ZooKeeper that know, in the end, whether they took place.

A write is one transaction, so that its conditions and its effect are one step. If the connection is
lost before the answer, it is sent again; should its condition then fail, what is there is compared
with what was to be written: equal content means that the first attempt had taken place.
Source: KAFKA-6082 and KafkaZkClient's own way of checking a state after a connection loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.client import TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import ZnodeStat

from neaptide.clusters.broker.coordination.client import Client

_REFUSALS = (BadVersionError, NodeExistsError, NoNodeError)
_CONSEQUENCES = (RolledBackError, RuntimeInconsistency)  # of another operation's refusal


@dataclass(frozen=True, slots=True)
class Written:
    """Done; `version` is the written znode's, where a version was set."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was written: the operation with this number did not hold its condition."""

    operation: int
    because: Exception


Fill = Callable[[TransactionRequest], None]


class ConditionalWrite:
    """A transaction under way; its last operation writes `data` to `path`."""

    def __init__(self, client: Client, fill: Fill, path: str, data: bytes) -> None:
        self._client = client
        self._fill = fill
        self._path = path
        self._data = data
        self._answer = self._send()

    def _send(self) -> Any:
        transaction = self._client.kazoo.transaction()
        self._fill(transaction)
        return transaction.commit_async()

    def result(self) -> Written | Refused:
        """Wait for the answer, over lost connections if need be."""
        is_uncertain = False
        while True:
            try:
                results = self._answer.get()
                break
            except ConnectionLoss:
                is_uncertain = True
                self._answer = self._send()
        refusal = _refusal(results)
        if refusal is None:
            last = results[-1]
            return Written(last.version if isinstance(last, ZnodeStat) else 0)
        if is_uncertain:
            found = self._client.get(self._path)
            if found is not None and found.data == self._data:
                return Written(found.stat.version)
        return refusal


def _refusal(results: Sequence[Any]) -> Refused | None:
    for number, result in enumerate(results):
        if isinstance(result, _REFUSALS):
            return Refused(number, result)
        if isinstance(result, Exception) and not isinstance(result, _CONSEQUENCES):
            raise result
    return None
