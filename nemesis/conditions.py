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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    def replicas(self) -> Sequence[int]: ...
    def refused(self, broker: int) -> bool: ...
    def obeyed(self, broker: int) -> bool: ...
    def fenced(self, broker: int) -> bool: ...
    def controller(self) -> int | None: ...
    def controller_epoch(self) -> int | None: ...
    def voters(self) -> Collection[int]: ...
    def named(self, name: str) -> int | None: ...
    def level(self) -> bool: ...
    def log_end_offset(self, broker: int) -> int | None: ...
    def high_watermark(self, broker: int) -> int | None: ...
    def log_start_offset(self, broker: int) -> int | None: ...
    def log_end_offset_on_disk(self, broker: int) -> int | None: ...
    def checkpointed(self, broker: int) -> int | None: ...
    def flushed(self, broker: int) -> int | None: ...
    def cleaned(self, broker: int, partition: int) -> int | None: ...
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

    `unmet`: what was observed instead, part by part, for whoever waited in vain:
    "HW(B) is 1, leader is C, isr is {A, C}".
    """

    text: str
    holds: Callable[[Observed], bool]
    subject: Evaluate
    begun: Callable[[Observed], Condition]
    unmet: Callable[[Observed], str]


@dataclass(frozen=True, slots=True)
class Function:
    """`kinds`: of its arguments. `meaning`: one or two sentences for readers."""

    kinds: tuple[str, ...]
    ask: Callable[..., Any]
    meaning: str


@dataclass(frozen=True, slots=True)
class Word:
    """Something that is asked without an argument."""

    ask: Evaluate
    meaning: str


FUNCTIONS: Final[Mapping[str, Function]] = {
    "acked": Function(
        ("record",),
        lambda o, r: o.acked(r),
        "The producer of the record has received its acknowledgement.",
    ),
    "failed": Function(
        ("record",),
        lambda o, r: o.failed(r),
        "The send of the record surely failed: the record was not appended.",
    ),
    "consumed": Function(("record",), lambda o, r: o.consumed(r), "A consumer has read it."),
    "committed": Function(
        ("group",),
        lambda o, g: o.committed(g),
        "The position that the group last committed, and whose acknowledgement it received.",
    ),
    "error": Function(
        ("record",),
        lambda o, r: o.error(r),
        "Kafka's name of the error that the producer of the record received, as"
        " `error(m2) is REQUEST_TIMED_OUT`.",
    ),
    "held": Function(
        ("speaker", "speaker"),
        lambda o, a, b: o.held(a, b),
        "The gate holds a message from the first to the second. `held(client, A)`: a message of a"
        " client.",
    ),
    "up": Function(("broker",), lambda o, b: o.up(b), "The broker's process lives."),
    "registered": Function(
        ("broker",),
        lambda o, b: o.registered(b),
        "The coordination service has a session of the broker.",
    ),
    "refused": Function(
        ("broker",),
        lambda o, b: o.refused(b),
        "A broker has answered this one, which sent as the controller, STALE_CONTROLLER_EPOCH, or"
        " STALE_BROKER_EPOCH (KIP-380).",
    ),
    "obeyed": Function(
        ("broker",),
        lambda o, b: o.obeyed(b),
        "A broker has done what this one, as the controller, requested.",
    ),
    "fenced": Function(
        ("broker",),
        lambda o, b: o.fenced(b),
        "The last response that this follower received (to Fetch or OffsetForLeaderEpoch) was"
        " FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH (KIP-320).",
    ),
    "LEO": Function(
        ("broker",),
        lambda o, b: o.log_end_offset(b),
        "The log end offset that the follower's last Fetch request named. Followers of the present"
        " leader have one; the leader itself has none.",
    ),
    "HW": Function(
        ("broker",),
        lambda o, b: o.high_watermark(b),
        "The high watermark in the last Fetch response that the follower received.",
    ),
    "log_start_offset": Function(
        ("broker",),
        lambda o, b: o.log_start_offset(b),
        "The first offset in the broker's files. The broker may be down.",
    ),
    "log_end_offset": Function(
        ("broker",),
        lambda o, b: o.log_end_offset_on_disk(b),
        "The log end offset in the broker's files. The broker may be down.",
    ),
    "checkpointed": Function(
        ("broker",),
        lambda o, b: o.checkpointed(b),
        "The high watermark in the broker's `replication-offset-checkpoint`.",
    ),
    "flushed": Function(
        ("broker",),
        lambda o, b: o.flushed(b),
        "The offset in the broker's `recovery-point-offset-checkpoint`: the log is on disk up to"
        " there.",
    ),
    "cleaned": Function(
        ("broker", "partition"),
        lambda o, b, p: o.cleaned(b, p),
        "The offset in the broker's `cleaner-offset-checkpoint`, of the partition with this number:"
        " its log is compacted up to there, as `cleaned(A, 0) >= 3`.",
    ),
    "round": Function(
        ("broker",),
        lambda o, b: o.round(b),
        "How many fetch rounds this follower began in the present leader epoch.",
    ),
    "hits": Function(("rule",), lambda o, r: o.hits(r), "How many messages the rule has matched."),
    "sender_gone": Function(
        ("rule",),
        lambda o, r: o.sender_gone(r),
        "The sender of every message that the rule holds has closed its connection.",
    ),
    "handled": Function(
        ("record",),
        lambda o, r: o.handled(r),
        "How often driven clients have handled the record.",
    ),
    "taken": Function(
        ("client", "record"),
        lambda o, c, r: o.taken(c, r),
        "The driven client has polled the record.",
    ),
    "assigned": Function(
        ("client",),
        lambda o, c: o.assigned(c),
        "How many partitions the driven client has.",
    ),
    "notified": Function(
        ("client",),
        lambda o, c: o.notified(c),
        "The last error that the driven client received, as"
        " `notified(x) is _AUTO_OFFSET_RESET`. `nobody`: none.",
    ),
}
WORDS: Final[Mapping[str, Word]] = {
    "leader": Word(
        lambda o: o.leader(),
        "The leader, as the coordination service has it: `leader is B`, `leader is nobody`.",
    ),
    "leader_epoch": Word(lambda o: o.leader_epoch(), "The leader epoch, from the same source."),
    "isr": Word(
        lambda o: frozenset(o.isr()),
        "The in-sync replicas, from the same source: `isr is {A, B}`, `A in isr`.",
    ),
    "isr_changes": Word(
        lambda o: o.isr_changes(), "How often the ISR was seen to shrink or expand."
    ),
    "replicas": Word(
        lambda o: frozenset(o.replicas()),
        "The brokers that the partition is assigned to, from the same source. While a reassignment"
        " goes on, the old ones and the new ones.",
    ),
    "preferred": Word(
        lambda o: next(iter(o.replicas()), None),
        "The preferred leader: the first broker that the partition is assigned to.",
    ),
    "controller": Word(
        lambda o: o.controller(),
        "The active controller: a broker, a name that a step gave with `as`, or `nobody`.",
    ),
    "controller_epoch": Word(lambda o: o.controller_epoch(), "The controller epoch."),
    "voters": Word(
        lambda o: frozenset(o.voters()),
        "The voters of a quorum of KRaft whose voters steps change: `old in voters`.",
    ),
    "level": Word(
        lambda o: o.level(),
        "Every follower that can be reached has all acknowledged records, and its high watermark"
        " is past them.",
    ),
    "commits_level": Word(lambda o: o.commits_level(), "The same of `__consumer_offsets`."),
    "nobody": Word(lambda o: None, "No broker, or nothing: `leader is nobody`."),
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
# How an argument of each kind is written in an example.
_WRITTEN: Final[Mapping[str, str]] = {
    "record": "m",
    "broker": "A",
    "speaker": "A",
    "partition": "0",
}


def written(name: str) -> str:
    """How a function is called: `held(A, B)`."""
    kinds = FUNCTIONS[name].kinds
    if kinds == ("speaker", "speaker"):
        return f"{name}(A, B)"
    return f"{name}({', '.join(_WRITTEN.get(kind, kind) for kind in kinds)})"


VOCABULARY: Final = ", ".join(
    (*map(written, FUNCTIONS), *WORDS, "NAME_OF_AN_ERROR", "was(X)", "numbers with + and -")
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
        return Condition(
            text,
            lambda observed: bool(compiled(observed)),
            subject,
            compile_at,
            lambda observed: ", ".join(_unmet(tree, compiler, observed)),
        )

    return compile_at(None)


def _unmet(tree: ast.expr, compiler: _Compiler, observed: Observed) -> Iterable[str]:
    """The parts that do not hold, and who leads whom, which most of them hang on."""
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    seen: dict[str, str] = {}
    for part in parts:
        if compiler.boolean(part)(observed):
            continue
        if isinstance(part, ast.Compare):
            for subject in filter(_is_asked, (part.left, *part.comparators)):
                value = compiler.value(subject)(observed)
                seen[ast.unparse(subject)] = _spelled(subject, value, compiler)
                if value is None and ast.unparse(subject).startswith("LEO("):
                    seen[ast.unparse(subject)] += " (of followers of the present leader it is)"
        else:
            seen[ast.unparse(part)] = "false"
    for word, value in ("leader", observed.leader()), ("isr", observed.isr()):
        seen[word] = _spelled(ast.Name(word), value, compiler)
    return (f"{subject} is {value}" for subject, value in seen.items())


def _is_asked(node: ast.expr) -> bool:
    """Of the cluster: no number, broker, set or name of an error."""
    match node:
        case ast.Name(name):
            return name in WORDS and name != "nobody"
        case ast.Call() | ast.BinOp():
            return True
        case _:
            return False


def _spelled(subject: ast.expr, value: Any, compiler: _Compiler) -> str:
    """As in a condition: brokers by their names, None as `nobody` or not known."""
    names = {number: name for name, number in compiler.brokers.items()}
    match subject:
        case ast.Call(ast.Name("was"), [what], []):
            return _spelled(what, value, compiler)
        case ast.Name("leader" | "controller" | "preferred"):
            return "nobody" if value is None else names.get(value, str(value))
        case ast.Name("isr" | "replicas"):
            return "{" + ", ".join(names.get(each, str(each)) for each in sorted(value)) + "}"
        case _:
            return "not known" if value is None else str(value)


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
            case ast.Name(name) if name in WORDS:
                return WORDS[name].ask
            case ast.Name(name) if _ERROR_NAME.fullmatch(name):
                return lambda o: name
            case ast.Name(name) if name in self.controllers:
                return lambda o: o.named(name)
            case ast.Call(ast.Name("was"), [what], []):
                return self._was(self.value(what))
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                return self._sum(left, op, right)
            case ast.Call(ast.Name(name), arguments, []) if name in FUNCTIONS:
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
        kinds, ask = FUNCTIONS[name].kinds, FUNCTIONS[name].ask
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
        if kind == "partition":
            if not name.isdecimal():
                raise ConditionError(f"in {self.text!r}: {name} is no number of a partition")
            return int(name)
        if name not in self.named[kind]:
            raise ConditionError(f"in {self.text!r}: {_NOBODY[kind]} {name}")
        return name

    def _unreadable(self, node: ast.expr) -> ConditionError:
        return ConditionError(
            f"in {self.text!r}: cannot read {ast.unparse(node)!r}; a condition is made of"
            f" {VOCABULARY}, comparisons, and, or, not, parentheses"
        )
