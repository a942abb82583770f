"""What is wrong with a document of a user, as one sentence: from pydantic's errors.

Scenario files, aimed faults and plans of nights are read by pydantic; all of them complain here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from neaptide.clusters.nearest import did_you_mean, nearest

_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")
_KINDS: Final[Mapping[str, str]] = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "list_type": "a list",
    "tuple_type": "a list",
}
_BOUNDS: Final[Mapping[str, str]] = {
    "greater_than_equal": "{ge:g} or more",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "{le:g} or less",
    "less_than": "less than {lt:g}",
}


def complaint(error: ValidationError, document: Any, known: Sequence[str]) -> str:
    """The first error, behind the tables that it is in. `known`: the keys that there may be."""
    first = error.errors(include_url=False)[0]
    *tables, key = [str(part) for part in first["loc"] if not isinstance(part, int)] or ["step"]
    where = f"{'.'.join(tables)}: " if tables else ""
    match first["type"]:
        case "missing":
            near = nearest(key, document) if not tables else None
            instead = f"; is {near!r} there in its place?" if near else ""
            return f"{where}{key!r} is missing{instead}"
        case unknown if unknown in _UNKNOWN:
            return f"{where}{key!r} is not known here{did_you_mean(key, known)}"
        case "value_error":
            return f"{where}{first['ctx']['error']}"
        case _:
            return f"{where}{_of_value(first, key)}"


def _of_value(error: ErrorDetails, key: str) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "literal_error":
        return f"{key} = {value!r} must be one of {_choices(str(context['expected']))}"
    if kind in _BOUNDS:
        return f"{key} = {value!r} must be {_BOUNDS[kind].format(**context)}"
    if kind == "too_short":
        return f"{key!r} must not be empty"
    expected = _KINDS.get(kind)
    if expected is None:
        return f"{key} = {value!r}: {error['msg'][0].lower()}{error['msg'][1:]}"
    return f"{key!r} must be {expected}, not {value!r}"


def _choices(expected: str) -> str:
    """Pydantic writes `'a', 'b' or 'c'`."""
    return expected.replace(" or ", ", ").replace("'", "")
