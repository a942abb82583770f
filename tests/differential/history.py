"""Histories of Jepsen's Kafka workload as plain data, and as EDN text, without Spark.

An entry is one line. Micro-operations are tuples: ("send", key, value), ("send", key, (offset,
value)), ("poll",) and ("poll", {key: ((offset, value), …)}). A second reader beside the one that
ships: what is read here is what the other should have read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Mop = tuple[Any, ...]
Pairs = Mapping[int, tuple[tuple[int | None, int], ...]]


@dataclass(frozen=True)
class Entry:
    """One line of a history; `value` is of micro-operations, or of keys for assign, subscribe."""

    type: str
    process: int | str  # a word: not a client
    f: str
    value: tuple[Any, ...] | None = None
    time: int = 0
    rebalanced: tuple[int, ...] = ()  # keys in its :rebalance-log

    @property
    def moves(self) -> bool:
        return self.f in ("send", "poll", "txn")


def sends(entry: Entry) -> Iterator[tuple[int, int | None, int]]:
    """Key, offset and value of every send."""
    for mop in entry.value or () if entry.moves else ():
        if mop[0] == "send":
            offset, value = mop[2] if isinstance(mop[2], tuple) else (None, mop[2])
            yield mop[1], offset, value


def polled(entry: Entry) -> Iterator[tuple[int, int | None, int]]:
    """Key, offset and value of every record that was read."""
    for mop in entry.value or () if entry.moves else ():
        if mop[0] == "poll" and len(mop) > 1:
            for key, pairs in mop[1].items():
                for offset, value in pairs:
                    yield key, offset, value


def text(entries: Iterable[Entry]) -> str:
    return "".join(f"{_line(index, entry)}\n" for index, entry in enumerate(entries))


def _line(index: int, entry: Entry) -> str:
    process = entry.process if isinstance(entry.process, int) else f":{entry.process}"
    log = "".join(
        f", :rebalance-log [{{:keys [{' '.join(map(str, keys))}]}}]"
        for keys in [entry.rebalanced]
        if keys
    )
    return (
        f"{{:index {index}, :type :{entry.type}, :process {process}, :time {entry.time}, "
        f":f :{entry.f}, :value {_value(entry)}{log}}}"
    )


def _value(entry: Entry) -> str:
    if entry.value is None:
        return "nil"
    parts = entry.value if not entry.moves else map(_mop, entry.value)
    return f"[{' '.join(map(str, parts))}]"


def _mop(mop: Mop) -> str:
    match mop:
        case ("send", key, (offset, value)):
            return f"[:send {key} [{_number(offset)} {value}]]"
        case ("send", key, value):
            return f"[:send {key} {value}]"
        case ("poll",):
            return "[:poll]"
    keys = (
        f"{key} [{' '.join(f'[{_number(offset)} {value}]' for offset, value in pairs)}]"
        for key, pairs in mop[1].items()
    )
    return f"[:poll {{{', '.join(keys)}}}]"


def _number(number: int | None) -> str:
    return "nil" if number is None else str(number)


_TOKEN: Final = re.compile(r"[\s,]*([\[\](){}]|\"[^\"]*\"|[^\s,\[\](){}\"]+)")
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}


def parse(source: str) -> tuple[Entry, ...]:
    """Entries of a history: of EDN, only what these histories are made of."""
    lines = (line for line in source.splitlines() if line.strip() and not line.startswith(";"))
    return tuple(_entry(_form(iter(_TOKEN.findall(line)))) for line in lines)


def read(path: Path) -> tuple[Entry, ...]:
    return parse(path.read_text(encoding="utf-8"))


def _form(tokens: Iterator[str]) -> Any:
    return _after(next(tokens), tokens)


def _after(token: str, tokens: Iterator[str]) -> Any:
    if token not in _CLOSING:
        return _atom(token)
    items = []
    while (inner := next(tokens)) != _CLOSING[token]:
        items.append(_after(inner, tokens))
    return dict(zip(items[::2], items[1::2], strict=True)) if token == "{" else tuple(items)


def _atom(token: str) -> Any:
    if token == "nil":
        return None
    return int(token) if re.fullmatch(r"-?\d+", token) else token


def _entry(form: Mapping[str, Any]) -> Entry:
    process, f = form[":process"], form[":f"][1:]
    value = form.get(":value")
    if f in ("send", "poll", "txn") and value is not None:
        value = tuple((mop[0][1:], *mop[1:]) for mop in value)
        value = tuple(mop for mop in value if mop != ("poll", None))
    log = form.get(":rebalance-log") or ()
    return Entry(
        form[":type"][1:],
        process if isinstance(process, int) else process[1:],
        f,
        value if isinstance(value, tuple) else None,
        form.get(":time", 0),
        tuple(key for event in log for key in event.get(":keys", ())),
    )
