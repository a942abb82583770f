"""What must be so after every event of a world: named invariants, each a sentence and a look.

Not a judge of how a run ends (see judge): an invariant is broken at the very event that breaks it,
also where nobody would notice for a long time. The first partition of the topic is looked at. Off
unless a watch is set on the world.
"""

from neaptide.nemesis.search.invariants.seen import BrokenError
from neaptide.nemesis.search.invariants.table import (
    CORE_ERRORS,
    CORE_RAISES,
    INVARIANTS,
    RECOVERS,
    SENTENCES,
    allowed_to_break,
)
from neaptide.nemesis.search.invariants.watch import Watch

__all__ = [
    "CORE_ERRORS",
    "CORE_RAISES",
    "INVARIANTS",
    "RECOVERS",
    "SENTENCES",
    "BrokenError",
    "Watch",
    "allowed_to_break",
]
