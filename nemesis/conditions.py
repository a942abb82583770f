"""What a step waits for: `acked(m2) and held(C, A)`, as a checked expression over what is observed.

The text is parsed by Python's own parser and then only a handful of forms is let through, so that
a condition reads like a sentence and can do nothing else. Names are checked when the scenario is
read, not when the cluster is already running.

`was(X)` is what X was when the waiting began, and numbers may be added and subtracted:
`round(A) >= was(round(A)) + 3` is three fetch rounds later.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol


class ConditionError(ValueError):
    """A condition that cannot be read; the message says what can."""


class Observed(Protocol):
    """What a condition may ask. Brokers are numbers; None is "not known"."""

    def acked(self, record: str) -> bool: ...
    def failed(self, record: str) -> bool: ...
    def error(self, record: str) -> str | None: ...
    def consumed(self, record: str) -> bool: ...
    def committed(self, group: str) -> int | None: ...
    def commits_level(self) -> bool: ...
    def held(self, source: int | str, destination: int | str) -> bool: ...
    def up(self, broker: int) -> bool: ...
    def registered(self, broker: int) -> bool: ...
    def leader(self) -> int | None: ...
    def leader_epoch(self) -> int | None: ...
    def isr(self) -> Collection[int]: ...
    def isr_changes(self) -> int: ...
    def refused(self, broker: int) -> bool: ...
    def obeyed(self, broker: int) -> bool: ...
    def fenced(self, broker: int) -> bool: ...
    def controller(self) -> int | None: ...
    def controller_epoch(self) -> int | None: ...
    def named(self, name: str) -> int | None: ...
    def level(self) -> bool: ...
    def log_end_offset(self, broker: int) -> int | None: ...
    def high_watermark(self, broker: int) -> int | None: ...
    def log_start_offset(self, broker: int) -> int | None: ...
    def log_end_offset_on_disk(self, broker: int) -> int | None: ...
    def checkpointed(self, broker: int) -> int | None: ...
    def flushed(self, broker: int) -> int | None: ...
    def round(self, broker: int) -> int | None: ...
    def hits(self, rule: str) -> int: ...
    def sender_gone(self, rule: str) -> bool: ...
    def handled(self, record: str) -> int: ...
    def taken(self, client: str, record: str) -> bool: ...
    def assigned(self, client: str) -> int: ...
    def notified(self, client: str) -> str | None: ...


Evaluate = Callable[[Observed], Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """`subject`: what stands left of a comparison, for whoever says what was seen instead.

    `begun`: the same condition, for a wait that begins now: each `was` is what is observed now. Of
    one that has not begun, it is what is observed when it is asked.
    """

    text: str
    holds: Callable[[Observed], bool]
    subject: Evaluate
    begun: Callable[[Observed], Condition]


# Function name → (kinds of its arguments, what it asks).
_FUNCTIONS: Final[Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]]] = {
    "acked": (("record",), lambda o, r: o.acked(r)),
    "failed": (("record",), lambda o, r: o.failed(r)),
    "consumed": (("record",), lambda o, r: o.consumed(r)),
    "committed": (("group",), lambda o, g: o.committed(g)),
    "error": (("record",), lambda o, r: o.error(r)),
    "held": (("speaker", "speaker"), lambda o, a, b: o.held(a, b)),
    "up": (("broker",), lambda o, b: o.up(b)),
    "registered": (("broker",), lambda o, b: o.registered(b)),
    "refused": (("broker",), lambda o, b: o.refused(b)),
    "obeyed": (("broker",), lambda o, b: o.obeyed(b)),
    "fenced": (("broker",), lambda o, b: o.fenced(b)),
    "LEO": (("broker",), lambda o, b: o.log_end_offset(b)),
    "HW": (("broker",), lambda o, b: o.high_watermark(b)),
    "log_start_offset": (("broker",), lambda o, b: o.log_start_offset(b)),
    "log_end_offset": (("broker",), lambda o, b: o.log_end_offset_on_disk(b)),
    "checkpointed": (("broker",), lambda o, b: o.checkpointed(b)),
    "flushed": (("broker",), lambda o, b: o.flushed(b)),
    "round": (("broker",), lambda o, b: o.round(b)),
    "hits": (("rule",), lambda o, r: o.hits(r)),
    "sender_gone": (("rule",), lambda o, r: o.sender_gone(r)),
    "handled": (("record",), lambda o, r: o.handled(r)),
    "taken": (("client", "record"), lambda o, c, r: o.taken(c, r)),
    "assigned": (("client",), lambda o, c: o.assigned(c)),
    "notified": (("client",), lambda o, c: o.notified(c)),
}
_WORDS: Final[Mapping[str, Evaluate]] = {
    "leader": lambda o: o.leader(),
    "leader_epoch": lambda o: o.leader_epoch(),
    "isr": lambda o: frozenset(o.isr()),
    "isr_changes": lambda o: o.isr_changes(),
    "controller": lambda o: o.controller(),
    "controller_epoch": lambda o: o.controller_epoch(),
    "level": lambda o: o.level(),
    "commits_level": lambda o: o.commits_level(),
    "nobody": lambda o: None,
}
_ORDER: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
# Kafka's names of errors, which `error(m)` is compared with, are words of their own.
_ERROR_NAME: Final = re.compile(r"_?[A-Z]+(_[A-Z]+)+")
_NOBODY: Final[Mapping[str, str]] = {
    "record": "no step produces the record",
    "group": "no step consumes as the group",
    "rule": "no earlier step has the rule",
    "client": "no earlier step has opened the client",
}
VOCABULARY: Final = (
    "acked(m), failed(m), consumed(m), error(m), committed(group), held(A, B), up(A),"
    " registered(A), refused(A), obeyed(A), fenced(A), LEO(A), HW(A), checkpointed(A), flushed(A),"
    " log_start_offset(A), log_end_offset(A), round(A), hits(rule), sender_gone(rule),"
    " handled(m), taken(client, m), assigned(client), notified(client), leader, leader_epoch,"
    " controller, controller_epoch, isr, isr_changes, level, commits_level, nobody,"
    " NAME_OF_AN_ERROR, was(X), numbers with + and -"
)
_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}


def parse_condition(
    text: str,
    brokers: Mapping[str, int],
    records: Collection[str],
    controllers: Collection[str] = (),
    groups: Collection[str] = (),
    rules: Collection[str] = (),
    clients: Collection[str] = (),
) -> Condition:
    """Raises ConditionError for what is no condition about these brokers and records.

    `controllers`: names that earlier steps gave to whoever was the active controller. `groups`:
    those that consumers of earlier steps, or of this one, are of; so `rules` and `clients`.
    """
    tree = _parse(text)
    named = {"record": records, "group": groups, "rule": rules, "client": clients}

    def compile_at(past: Observed | None) -> Condition:
        compiler = _Compiler(text, brokers, controllers, named, past)
        compiled = compiler.boolean(tree)
        subject = compiler.value(tree.left) if isinstance(tree, ast.Compare) else compiled
        return Condition(text, lambda observed: bool(compiled(observed)), subject, compile_at)

    return compile_at(None)


def parse_number(text: str, brokers: Mapping[str, int]) -> Evaluate:
    """What a text such as `HW(A) + 3` comes to; None where it is not known.

    Raises ConditionError.
    """
    return _Compiler(text, brokers, (), {}).value(_parse(text))


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ConditionError(f"cannot read the condition {text!r}") from None


@dataclass(frozen=True, slots=True)
class _Compiler:
    text: str
    brokers: Mapping[str, int]
    controllers: Collection[str]
    named: Mapping[str, Collection[str]]  # by kind of argument
    past: Observed | None = None  # what was observed when the waiting began

    def boolean(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.BoolOp(op, values):
                parts = [self.boolean(value) for value in values]
                combine = all if isinstance(op, ast.And) else any
                return lambda o: combine(part(o) for part in parts)
            case ast.UnaryOp(ast.Not(), operand):
                part = self.boolean(operand)
                return lambda o: not part(o)
            case ast.Compare(left, [op], [right]):
                return self._comparison(left, op, right)
            case ast.Call() | ast.Name():
                return self.value(node)
            case _:
                raise self._unreadable(node)

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Evaluate:
        first, second = self.value(left), self.value(right)
        match op:
            case ast.Is() | ast.Eq():
                return lambda o: first(o) == second(o)
            case ast.IsNot() | ast.NotEq():
                return lambda o: first(o) != second(o)
            case ast.In():
                return lambda o: first(o) in (second(o) or ())
            case ast.NotIn():
                return lambda o: first(o) not in (second(o) or ())
            case _:
                compare = _ORDER[type(op)]

                def ordered(observed: Observed) -> bool:
                    a, b = first(observed), second(observed)
                    return a is not None and b is not None and compare(a, b)

                return ordered

    def value(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.Constant(int() as number):
                return lambda o: number
            case ast.Set(elements):
                members = [self.value(element) for element in elements]
                return lambda o: frozenset(member(o) for member in members)
            case ast.Dict([]):  # {}: in a condition there are sets only
                return lambda o: frozenset()
            case ast.Name(name) if name in self.brokers:
                broker = self.brokers[name]
                return lambda o: broker
            case ast.Name(name) if name in _WORDS:
                return _WORDS[name]
            case ast.Name(name) if _ERROR_NAME.fullmatch(name):
                return lambda o: name
            case ast.Name(name) if name in self.controllers:
                return lambda o: o.named(name)
            case ast.Call(ast.Name("was"), [what], []):
                return self._was(self.value(what))
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                return self._sum(left, op, right)
            case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
                return self._call(name, arguments)
            case _:
                raise self._unreadable(node)

    def _was(self, ask: Evaluate) -> Evaluate:
        if self.past is None:
            return ask
        value = ask(self.past)
        return lambda o: value

    def _sum(self, left: ast.expr, op: ast.operator, right: ast.expr) -> Evaluate:
        first, second, add = self.value(left), self.value(right), _ARITHMETIC[type(op)]

        def added(observed: Observed) -> int | None:
            a, b = first(observed), second(observed)
            return add(a, b) if isinstance(a, int) and isinstance(b, int) else None

        return added

    def _call(self, name: str, arguments: list[ast.expr]) -> Evaluate:
        kinds, ask = _FUNCTIONS[name]
        if len(arguments) != len(kinds):
            raise ConditionError(
                f"in {self.text!r}: {name} takes {len(kinds)}, not {len(arguments)}"
            )
        given = [self._argument(kind, node) for kind, node in zip(kinds, arguments, strict=True)]
        return lambda o: ask(o, *given)

    def _argument(self, kind: str, node: ast.expr) -> str | int:
        name = node.id if isinstance(node, ast.Name) else ast.unparse(node)
        if kind == "speaker" and name == "client":
            return name
        if kind in ("broker", "speaker"):
            if name not in self.brokers:
                raise ConditionError(
                    f"in {self.text!r}: {name} is no broker; there are {', '.join(self.brokers)}"
                )
            return self.brokers[name]
        if name not in self.named[kind]:
            raise ConditionError(f"in {self.text!r}: {_NOBODY[kind]} {name}")
        return name

    def _unreadable(self, node: ast.expr) -> ConditionError:
        return ConditionError(
            f"in {self.text!r}: cannot read {ast.unparse(node)!r}; a condition is made of"
            f" {VOCABULARY}, comparisons, and, or, not, parentheses"
        )
