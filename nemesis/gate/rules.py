"""Asks one question of each message: which rule takes it? Pure; the first that matches wins.

A rule decides when a message reaches the gate, not later: what already waits is not asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.apis import CONTROLLER_NAMES
from neaptide.nemesis.gate.model import Endpoint, MessageKind, Purpose, Rule
from neaptide.nemesis.gate.where import parse_where

NO_PARTITION: Final = ("", -1)  # of a message that is about none, as EndTxn and Heartbeat are


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What a message says of one partition, and what the gate knows of it."""

    topic: str
    partition: int
    numbers: Mapping[str, int | str | None]  # by the names in where.NAMES


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """A message as rules see it."""

    api: str
    message: MessageKind
    source: Endpoint | None
    destination: Endpoint | None
    partitions: tuple[PartitionFacts, ...]
    purpose: Purpose = "replication"  # of the link that it travels on


@dataclass(frozen=True, slots=True)
class Installed:
    """A rule and how many messages it has taken."""

    rule: Rule
    taken: int = 0

    @property
    def spent(self) -> bool:
        return self.rule.times is not None and self.taken >= self.rule.times


@dataclass(frozen=True, slots=True)
class RuleBook:
    """The rules in force, in the order in which they were installed."""

    installed: tuple[Installed, ...] = ()

    def install(self, rule: Rule) -> RuleBook:
        if any(entry.rule.id == rule.id for entry in self.installed):
            raise UsageError(f"there is a rule {rule.id!r} already: remove it or choose another id")
        return RuleBook((*self.installed, Installed(rule)))

    def remove(self, rule_id: str) -> RuleBook:
        return RuleBook(tuple(entry for entry in self.installed if entry.rule.id != rule_id))

    def judge(self, message: MessageFacts) -> tuple[RuleBook, Rule | None]:
        """The rule that takes this message, or None: it passes; and the book afterwards."""
        for index, entry in enumerate(self.installed):
            if not entry.spent and matches(entry.rule, message):
                counted = replace(entry, taken=entry.taken + 1)
                book = (*self.installed[:index], counted, *self.installed[index + 1 :])
                return RuleBook(book), entry.rule
        return self, None


_BY_NAME: Final = frozenset(CONTROLLER_NAMES.values())  # "any" is none of these


def matches(rule: Rule, message: MessageFacts) -> bool:
    """Whether a rule is about this message."""
    return (
        rule.message == message.message
        and rule.purpose in (None, message.purpose)
        and (rule.api == message.api or (rule.api == "any" and message.api not in _BY_NAME))
        and rule.source in (None, message.source)
        and rule.destination in (None, message.destination)
        and any(_about(rule, partition) for partition in message.partitions)
    )


def _about(rule: Rule, facts: PartitionFacts) -> bool:
    """A message that is about no partition is taken by a rule that names its API, whatever
    partition the rule is about: no message of that API would be about it."""
    is_about_it = (
        rule.topic in (None, facts.topic) and rule.partition in (None, facts.partition)
    ) or ((facts.topic, facts.partition) == NO_PARTITION and rule.api != "any")
    return is_about_it and all(
        comparison.holds(facts.numbers) for comparison in parse_where(rule.where)
    )
