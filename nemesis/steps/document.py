"""One `[[step]]` of a scenario file, or of an aimed fault: what is done, until when, why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError

from neaptide.clusters.duration import read_duration_s
from neaptide.nemesis.complaints import complaint
from neaptide.nemesis.conditions import Condition, ConditionError
from neaptide.nemesis.steps.language import VERBS, Complain, Names, Step, read_step
from neaptide.nemesis.steps.waiting import Await

_Seconds = Annotated[float, Strict(), BeforeValidator(read_duration_s), Field(gt=0)] | None


class Common(BaseModel):
    """The keys that every step may have beside its verb."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    until: str | None = None
    """What the step waits for: a condition."""
    within: _Seconds = None
    """How long it waits at most: a number of seconds, or a text as `90s`."""
    why: str = ""
    """What it is for: a text for readers."""
    at: _Seconds = None
    """Of a file with `run`: when it begins, in seconds since the load began. A step without it goes
    on where the one before it, and so the `cast` that began it, has ended."""
    lasts: _Seconds = None
    """Of a file with `run`: after how many seconds it is undone."""


@dataclass(frozen=True, slots=True)
class Document:
    """`within_s` None: the file does not say."""

    step: Step
    until: Condition | None
    within_s: float | None
    why: str
    at_s: float | None = None
    lasts_s: float | None = None


def read_document(
    raw: Mapping[str, Any],
    names: Names,
    condition: Callable[[str], Condition],
    complain: Complain,
) -> Document:
    """Raises what `complain` makes of a sentence."""
    common = {key: value for key, value in raw.items() if key in Common.model_fields}
    verbs = [key for key in raw if key not in common]
    if len(verbs) > 1:
        raise complain(f"has {' and '.join(verbs)}; a step does one thing")
    if not verbs and "until" not in raw:
        raise complain(f"does nothing; a step is one of {', '.join(VERBS)}, or an until")
    try:
        said = Common.model_validate(common)
    except ValidationError as error:
        raise complain(complaint(error, raw, tuple(Common.model_fields))) from None
    step = read_step(verbs[0], raw[verbs[0]], names, complain) if verbs else Await()
    try:
        until = None if said.until is None else condition(said.until)
    except ConditionError as error:
        raise complain(str(error)) from None
    if said.lasts is not None and not step.passes:
        raise complain(f"{verbs[0] if verbs else 'an until'} is not undone: leave out lasts")
    if not names.is_timed and not (said.at is None and said.lasts is None):
        raise complain("at and lasts are for files with run; here a step follows the one before it")
    return Document(step, until, said.within, said.why, said.at, said.lasts)
