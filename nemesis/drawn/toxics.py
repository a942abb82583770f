"""Toxics on links as faults of a random run: drawn, as data. Pure.

None of them may lose what was acknowledged: TCP loses the rest of a connection, never its midst.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from neaptide.clusters.hosts.toxiproxy import Stream, Toxic, ToxicKind
from neaptide.nemesis.steps import Purpose

_PURPOSES: Final[Mapping[Purpose, float]] = {"replication": 3, "client": 2, "coordination": 1}


@dataclass(frozen=True, slots=True)
class SlowFault:
    """A toxic on the link of a broker and a purpose, as in nemesis.steps.AddToxic."""

    broker: int
    purpose: Purpose
    toxic: Toxic
    kind: Literal["slow"] = "slow"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "broker": self.broker,
            "purpose": self.purpose,
            "type": self.toxic.kind,
            "stream": self.toxic.stream,
            "attributes": dict(self.toxic.attributes),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SlowFault:
        given = {str(name): int(value) for name, value in raw["attributes"].items()}
        if raw["type"] not in _ATTRIBUTES or raw["stream"] not in get_args(Stream):
            raise ValueError(f"{raw['type']!r} {raw['stream']!r} is no toxic")
        toxic = Toxic(raw["type"], raw["stream"], given)
        problem = toxic.problem()
        if problem is not None:
            raise ValueError(problem)
        if raw["purpose"] not in get_args(Purpose):
            raise ValueError(f"{raw['purpose']!r} is no purpose of a link")
        return cls(int(raw["broker"]), raw["purpose"], toxic)


def draw_slow(rng: random.Random, brokers: Sequence[int]) -> SlowFault:
    broker = rng.choice(brokers)
    [purpose] = rng.choices(list(_PURPOSES), list(_PURPOSES.values()))
    kind = rng.choice(list(_ATTRIBUTES))
    stream = rng.choice(get_args(Stream))
    return SlowFault(broker, purpose, Toxic(kind, stream, _ATTRIBUTES[kind](rng)))


def _latency(rng: random.Random) -> dict[str, int]:
    latency_ms = _of_any_size(rng, 20, 1_500)
    return {"latency_ms": latency_ms, "jitter_ms": rng.randint(0, latency_ms // 2)}


def _slicer(rng: random.Random) -> dict[str, int]:
    size = _of_any_size(rng, 2, 500)
    return {
        "bytes": size,
        "variation_bytes": rng.randint(0, size - 1),
        "delay_us": rng.randint(0, 2_000),
    }


def _of_any_size(rng: random.Random, least: int, most: int) -> int:
    """Small ones as likely as large ones."""
    return int(least * (most / least) ** rng.random())


_ATTRIBUTES: Final[Mapping[ToxicKind, Callable[[random.Random], dict[str, int]]]] = {
    "latency": _latency,
    "bandwidth": lambda rng: {"kb_per_s": _of_any_size(rng, 2, 500)},
    "slow_close": lambda rng: {"delay_ms": _of_any_size(rng, 100, 3_000)},
    "timeout": lambda rng: {"timeout_ms": rng.choice((0, _of_any_size(rng, 100, 3_000)))},
    "reset_peer": lambda rng: {"timeout_ms": rng.randint(0, 1_000)},
    "slicer": _slicer,
    "limit_data": lambda rng: {"bytes": _of_any_size(rng, 100, 200_000)},
}
