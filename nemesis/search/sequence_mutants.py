"""Mutants of the rules of idempotent producers: see mutants, which has the others."""

from __future__ import annotations

from typing import Any, Final

from clusters.broker.replication import leading, partition, producers, step
from clusters.broker.replication import messages as told
from clusters.simulation.disk import Disk
from nemesis.search import broken_sequences as broken
from nemesis.search.mutant import ONE, Mutant


def _rule(name: str, owner: Any, rule: Any, by: Any, sentence: str, **rest: Any) -> Mutant:
    """One function is another one, and producers are idempotent."""
    return Mutant(name, sentence, replaced=((owner, rule, by),), idempotence=True, **rest)


SEQUENCES: Final = (
    _rule(
        "sequences-not-checked",
        producers,
        "check",
        broken.checks_nothing,
        "A leader appends whatever sequence an idempotent producer sends.",
    ),
    _rule(
        "duplicates-appended",
        producers,
        "check",
        broken.appends_duplicates,
        "A leader appends a batch that it knows again.",
    ),
    _rule(
        "duplicates-acked-at-once",
        leading,
        "_known",
        broken.acks_duplicates_at_once,
        "A duplicate is acknowledged to acks=all although its first copy is not committed.",
    ),
    _rule(
        "gaps-accepted",
        producers,
        "check",
        broken.accepts_gaps,
        "A leader appends a batch before which others are missing.",
        hidden="what is missing is refused when it comes, and never acknowledged",
    ),
    _rule(
        "late-sequences-taken",
        producers,
        "check",
        broken.takes_what_came_late,
        "A leader appends a batch after those that should have come behind it.",
    ),
    _rule(
        "leaders-learn-nothing",
        partition,
        "append_as_leader",
        broken.leaders_learn_nothing,
        "A leader does not remember the sequences of what it appends.",
    ),
    _rule(
        "followers-learn-nothing",
        partition,
        "append_as_follower",
        broken.followers_learn_nothing,
        "A follower does not remember the sequences of what it appends.",
    ),
    _rule(
        "remembers-what-was-cut",
        step._HANDLERS,
        told.ProducersRead,
        broken.remembers_what_was_cut,
        "A log that is cut keeps what is remembered of the batches that were cut off.",
        topic_settings=ONE,
    ),
    _rule(
        "forgets-all-when-cut",
        step._HANDLERS,
        told.ProducersRead,
        broken.forgets_all_when_cut,
        "A log that is cut forgets also the producers of what is left.",
        topic_settings=ONE,
    ),
    _rule(
        "producers-not-read",
        Disk,
        "stored",
        broken.reads_no_producers,
        "A broker that starts knows nothing of the producers of what is on its disk.",
    ),
)
