"""Bytes of every kind against the one function that reads entities: prints JSON.

    python -m tests.hardening.entities [--messages 1000000] [--seed 1]

Every entity that kio has, and those of controllers, which kio has not. Whatever the bytes are, the
function returns, or says in its own words that they cannot be read; and what stands before kio has
come as far as kio.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import pkgutil
import random
import sys
from collections import Counter
from typing import Any, Final

import kio.schema

from neaptide.clusters.broker.wire import (
    control,
    control_flexible,
    control_shutdown,
    txn_markers,
)
from neaptide.clusters.broker.wire.reading import UnreadableError, read_entity

MESSAGES: Final = 1_000_000
_OWN: Final = (control, control_flexible, control_shutdown, txn_markers)
_PIECES: Final = (
    *(b"\0", b"\1", b"\2", b"\3", b"\0\1", b"\0\0\0\1", bytes(8), bytes(16)),
    *(b"\xff\xff", b"\xfe\xff", b"\x7f\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"),
    *(b"\x80\0\0\1", b"\0\1\0\0", b"\0\0\4\0", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f"),
    *(b"\x85\x80\x80\x80\x10", b"\x80\x80\x80\x80\x08", b"\x81\0", b"\xc8\x01"),
)


def entities() -> list[Any]:
    modules: list[Any] = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(kio.schema.__path__, "kio.schema.")
        if ".v" in found.name
    ]
    return [
        kind
        for module in (*modules, *_OWN)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and dataclasses.is_dataclass(kind)
        and kind.__module__ == module.__name__
    ]


def hurt(messages: int, number: int) -> dict[str, Any]:
    chance = random.Random(f"entities/{number}")
    kinds = entities()
    outcomes: Counter[str] = Counter()
    for _ in range(messages):
        message = b"".join(
            chance.choice(_PIECES) if chance.random() < 0.95 else chance.randbytes(3)
            for _ in range(chance.randrange(1, 60))
        )
        try:
            read_entity(chance.choice(kinds), message)
            outcomes["read"] += 1
        except UnreadableError as error:
            apart = str(error).startswith("of ") and "are read" in str(error)
            outcomes["read otherwise than it was looked at" if apart else "refused"] += 1
    return {
        "messages": messages,
        "entities": len(kinds),
        "outcomes": dict(sorted(outcomes.items())),
    }


def held(found: dict[str, Any]) -> bool:
    return set(found["outcomes"]) <= {"read", "refused"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    found = hurt(asked.messages, asked.seed)
    print(json.dumps(found, indent=2))
    return int(not held(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
