"""What the shipped command says of the same histories: `neaptide check *.edn --json`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.differential.compare import acknowledges, counting, reported
from tests.differential.history import Entry, polled, sends

# Looked for with `--thorough` only.
_THOROUGH: Final = ("send-skip", "G-single", "G2")
_COMMAND: Final = (sys.executable, "-m", "neaptide.harness.cli", "check", "--json")


@dataclass(frozen=True)
class Checked:
    verdict: str
    counts: dict[str, int]  # of anomalies, by name
    searched: bool  # for cycles: so are runs with transactions


def check(paths: Sequence[Path], runs: Path) -> list[Checked]:
    """One verdict a history, in the order of the paths; the run directories are left in `runs`."""
    done = subprocess.run(
        [*_COMMAND, *map(str, paths)],
        text=True,
        capture_output=True,
        check=False,
        env=os.environ | {"NEAPTIDE_RUNS": str(runs)},
    )
    if not done.stdout.strip():
        raise RuntimeError(done.stderr)
    answers = json.loads(done.stdout)["runs"]
    if len(answers) != len(paths):
        raise RuntimeError(f"{len(paths)} histories, {len(answers)} verdicts: {done.stderr}")
    return [
        Checked(
            one["verdict"], one["anomalies"] | one["allowed"], one["proofs"]["cycles"] is not None
        )
        for one in answers
    ]


def against_oracle(entries: Sequence[Entry], checked: Checked) -> tuple[str, ...]:
    """Where the command and the oracle do not say the same."""
    found = reported(entries)
    subscribed = any(entry.f == "subscribe" for entry in entries)
    names = Counter(name for name, *_ in found)
    seen = Counter({n: c for n, c in checked.counts.items() if not n.startswith(_THOROUGH)})
    if not checked.searched:
        # G0 never counts, and a cycle of real time is found by its pairs, of which a component has
        # one or more.
        del names["G0"]
        for counts in (names, seen):
            counts["G1c-realtime"] = min(1, counts["G1c-realtime"])
    wrong = [
        f"{name}: {names[name]} by the oracle, {seen[name]} by the check"
        for name in sorted({*names, *seen})
        if names[name] != seen[name]
    ]
    expected = expected_verdicts(entries, counting(found, subscribed=subscribed))
    if checked.verdict not in expected:
        wrong.append(f"verdict: {checked.verdict}, not {' or '.join(expected)}")
    return tuple(wrong)


def expected_verdicts(entries: Sequence[Entry], counts: set[str]) -> tuple[str, ...]:
    """Anomalous; unknown where nothing was acknowledged; else valid, or unknown with a reason.

    The reason: a key that somebody sent to, with an end that is not known, and that nobody read.
    """
    if counts:
        return ("anomalous",)
    done = [entry for entry in entries if entry.type == "ok"]
    if not acknowledges(entries):
        return ("unknown",)
    written = {key for entry in entries for key, _, _ in sends(entry)}
    read = {key for entry in done for key, _, _ in polled(entry)}
    return ("valid", "unknown") if written - read else ("valid",)
