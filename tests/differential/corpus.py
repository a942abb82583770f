"""Small histories that are kept, each with what Jepsen's checker was seen to say of it.

`verdicts.json` beside them is written by the judge, never by hand (`python -m tests.differential
--judge … --record DIRECTORY`); tests compare it with ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.differential import compare, history, jepsen
from tests.differential.history import Entry

CORPUS: Final = Path(__file__).parents[1] / "checkers" / "jepsen_corpus"
_VERDICTS: Final = "verdicts.json"


@dataclass(frozen=True)
class Kept:
    """One history, and what is on record of it."""

    name: str
    path: Path
    entries: tuple[Entry, ...]
    said: jepsen.Said
    of_twin: jepsen.Said | None
    differs: frozenset[str]  # names of the differences on purpose that it shows
    ours: frozenset[str]  # anomalies, as `neaptide check` names them
    valid: bool  # nothing of ours counts


def kept(directory: Path = CORPUS) -> list[Kept]:
    records = json.loads((directory / _VERDICTS).read_text(encoding="utf-8"))
    found = []
    for path in sorted(directory.glob("*.edn")):
        record = records[path.stem]
        found.append(
            Kept(
                path.stem,
                path,
                history.read(path),
                _said(record["jepsen"]),
                _said(record["twin"]) if "twin" in record else None,
                frozenset(record["differs"]),
                frozenset(record["neaptide"]["anomalies"]),
                record["neaptide"]["valid"],
            )
        )
    return found


def recorded(directory: Path = CORPUS) -> set[str]:
    return set(json.loads((directory / _VERDICTS).read_text(encoding="utf-8")))


def record(judge: Path, directory: Path) -> list[str]:
    """Ask the judge about every history there, and write down what it says; what is unexplained."""
    paths = sorted(directory.absolute().glob("*.edn"))
    answers = [jepsen.said(answer) for answer in jepsen.ask(judge, paths)]
    records, unexplained = {}, []
    for path, said in zip(paths, answers, strict=True):
        entries = history.read(path)
        twin = jepsen.ask_twin(judge, compare.twin(entries)) if said.throws else None
        compared = compare.against_jepsen(entries, said, twin)
        unexplained += [f"{path.stem}: {why}" for why in compared.unexplained]
        records[path.stem] = {
            "jepsen": _written(said),
            **({"twin": _written(twin)} if twin else {}),
            "differs": sorted(compared.reasons),
            "neaptide": {
                "valid": not compare.invalid(entries),
                "anomalies": sorted({name for name, *_ in compare.reported(entries)}),
            },
        }
    text = json.dumps(records, indent=1, sort_keys=True)
    (directory / _VERDICTS).write_text(f"{text}\n", encoding="utf-8")
    return unexplained


def _written(said: jepsen.Said) -> dict[str, Any]:
    if said.throws:
        return {"throws": said.throws}
    return {
        "valid": said.valid,
        "bad": sorted(said.bad),
        "errors": sorted(said.errors),
        "errors_ww": sorted(said.errors_ww),
        "sets": {name: sorted(map(list, named)) for name, named in said.sets.items() if named},
    }


def _said(record: dict[str, Any]) -> jepsen.Said:
    if "throws" in record:
        return jepsen.Said(throws=record["throws"])
    return jepsen.Said(
        bad=frozenset(record["bad"]),
        errors=frozenset(record["errors"]),
        errors_ww=frozenset(record["errors_ww"]),
        sets={
            name: frozenset((key, other) for key, other in record["sets"].get(name, ()))
            for name in jepsen.SETS
        },
    )
