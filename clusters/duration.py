"""How long something lasts, as people write it: `90s`, `2h`, `1h30m`, or a number of seconds."""

from __future__ import annotations

import re
from typing import Any, Final

_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION: Final = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in _SECONDS))
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


def parse_duration_s(text: str | float) -> float:
    """`90s`, `30m`, `2h`, `1h30m`, `1d`; without a unit, seconds. Raises ValueError."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    said = str(text).strip()
    if _NUMBER.fullmatch(said):
        return float(said)
    found = _DURATION.fullmatch(said)
    if found is None or not said:
        raise ValueError(f"{text!r} is no duration, as 90s, 30m or 1h30m")
    return sum(
        float(number) * seconds
        for number, seconds in zip(found.groups(), _SECONDS.values(), strict=True)
        if number
    )


def read_duration_s(value: Any) -> Any:
    """What pydantic reads before a number of seconds: a text with a unit. Raises ValueError."""
    return parse_duration_s(value) if isinstance(value, str) else value
