"""The story of a run as a Mermaid sequence diagram: what GitHub and GitLab draw in Markdown. Pure.

The same moments as the fetch-round diagram of the report, as text; logs are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from neaptide.results.report.story import CONSUMER, PRODUCER, Arrow, Badge, Line, Moment

MOMENTS_MAX: Final = 60
_UNWANTED: Final = re.compile(r"[;#\n\r%<>{}]")  # these mean something to Mermaid


def sequence_diagram(moments: Iterable[Moment], brokers: Sequence[str]) -> str:
    """Lines from `sequenceDiagram` on; at most MOMENTS_MAX moments, and a note says what is not."""
    drawn = [text for moment in moments if (text := _drawn(moment, brokers)) is not None]
    lines = ["sequenceDiagram", *(f"    participant {name}" for name in _lifelines(brokers))]
    lines += [f"    {text}" for text in drawn[:MOMENTS_MAX]]
    if len(drawn) > MOMENTS_MAX:
        over = f"{brokers[0]},{brokers[-1]}"
        lines.append(f"    Note over {over}: {len(drawn) - MOMENTS_MAX} more in the report")
    return "\n".join(lines)


def _lifelines(brokers: Sequence[str]) -> Iterator[str]:
    yield PRODUCER
    yield from brokers
    yield CONSUMER


def _drawn(moment: Moment, brokers: Sequence[str]) -> str | None:
    at = f"{moment.at_ns / 1e9:.3f} s"
    match moment:
        case Arrow():
            sign = "--x" if moment.lost else "->>"
            return f"{moment.source}{sign}{moment.destination}: {at} {_text(moment.text)}"
        case Badge() if moment.lifeline in brokers:
            return f"Note over {moment.lifeline}: {at} {_text(moment.text)}"
        case Badge() | Line():
            who = f"{moment.lifeline}: " if isinstance(moment, Badge) else ""
            return f"Note over {brokers[0]},{brokers[-1]}: {at} {who}{_text(moment.text)}"
        case _:
            return None


def _text(text: str) -> str:
    return _UNWANTED.sub(" ", text.replace("{", "(").replace("}", ")"))
