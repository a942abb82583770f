"""How long something took, for people. Pure."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """As `1 h 2 min`, `3 min 4 s` or `5 s`."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
