"""Mutants: the core with one rule broken, each to be found by the search, or named with a reason.

A mutant that nothing finds is a rule that nothing checks. Each file here has those of one part of
the rules, with the broken rules themselves; this is the table of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.nemesis.search.mutants import (
    acks,
    answers,
    commits,
    control,
    eligible,
    epochs,
    fenced,
    high_watermark,
    isr,
    operators,
    readers,
    relieved,
    sequences,
    several,
    successors,
    terms,
    transactions,
    truncation,
    waiting,
)
from neaptide.nemesis.search.mutants.mutant import Mutant, applied

__all__ = ["BY_NAME", "MUTANTS", "Mutant", "applied"]

MUTANTS: Final = (
    *truncation.MUTANTS,
    *epochs.MUTANTS,
    *isr.MUTANTS,
    *high_watermark.MUTANTS,
    *acks.MUTANTS,
    *control.MUTANTS,
    *eligible.MUTANTS,
    *answers.MUTANTS,
    *sequences.MUTANTS,
    *commits.MUTANTS,
    *readers.MUTANTS,
    *fenced.MUTANTS,
    *several.MUTANTS,
    *waiting.MUTANTS,
    *successors.MUTANTS,
    *relieved.MUTANTS,
    *operators.MUTANTS,
    *terms.MUTANTS,
    *transactions.MUTANTS,
)
BY_NAME: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in MUTANTS}
assert len(BY_NAME) == len(MUTANTS)
