"""The client that scenarios are played with: a program that speaks the lines of docs/clients.md."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.workloads.adapters.table import ADAPTERS, shipped
from neaptide.workloads.driven import describe
from neaptide.workloads.errors import ClientsError

ABILITIES: Final = ("groups", "idempotence", "transactions")
_DESCRIBES_S: Final = 60.0  # it may be compiled first


@dataclass(frozen=True, slots=True)
class Program:
    """`asked`: as the user names it; `argv`: how it is started."""

    asked: list[str]
    argv: tuple[str, ...]
    client: str
    version: str
    can: frozenset[str]

    def __str__(self) -> str:
        return f"{self.client} {self.version}".strip()


def find_program(asked: Sequence[str]) -> Program:
    """The name of one that ships, or a program with its arguments. Raises ClientsError, in a
    sentence, and MissingPartError."""
    words = shipped(asked[0])
    if words is not None and len(asked) > 1:
        raise ClientsError(f"{asked[0]} is a client that ships, and takes no arguments.")
    argv = words or tuple(asked)
    if shutil.which(argv[0]) is None:
        ships = ", ".join(ADAPTERS)
        raise ClientsError(f"There is no program {argv[0]}. Clients that ship: {ships}.")
    said = describe(argv, _DESCRIBES_S, shlex.join(asked))
    unknown = sorted(set(said.can) - {*ABILITIES})
    if unknown:
        raise ClientsError(
            f"{said.client} says that it can {', '.join(unknown)}; what is known is"
            f" {', '.join(ABILITIES)}."
        )
    return Program(list(asked), argv, said.client, said.version, frozenset(said.can))
