"""Thousands of generated and mutated histories before several judges; what differs has a reason.

python -m tests.differential --judge judge.sh --histories 2000 --seed 1
python -m tests.differential --check --histories 300
python -m tests.differential --judge judge.sh --record tests/checkers/jepsen_corpus

The judge reads paths of EDN histories and prints what Jepsen's checker says, one JSON line each;
without it, and with `--check`, the oracle and `neaptide check` are compared. Prints JSON: how often
each named reason was met, and each history that none explains, by its seed (`--keep DIRECTORY`
leaves the files); if there is any, the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.differential import check, compare, corpus, generate, history, jepsen, mutate
from tests.differential.history import Entry

BATCH = 500
PLAIN_EVERY = 8  # one in so many is left as it is: valid


@dataclass(frozen=True)
class Case:
    seed: int
    mutations: tuple[str, ...]
    entries: tuple[Entry, ...]
    path: Path


def case(seed: int, directory: Path) -> Case:
    entries = generate.history(seed)
    mutations: tuple[str, ...] = ()
    if seed % PLAIN_EVERY:
        entries, mutations = mutate.mutated(seed, entries)
    path = directory / f"h{seed:08d}.edn"
    path.write_text(history.text(entries), encoding="utf-8")
    return Case(seed, mutations, entries, path)


def judged(judge: Path, cases: Sequence[Case]) -> Iterator[tuple[Case, compare.Compared, str]]:
    """What Jepsen says, of the twin where it threw, against the oracle."""
    said = [jepsen.said(answer) for answer in jepsen.ask(judge, [one.path for one in cases])]
    twins = []
    for one, answer in zip(cases, said, strict=True):
        if answer.throws:
            twins.append(one.path.with_suffix(".twin.edn"))
            twins[-1].write_text(history.text(compare.twin(one.entries)), encoding="utf-8")
    of_twins = dict(zip(twins, map(jepsen.said, jepsen.ask(judge, twins)), strict=True))
    for one, answer in zip(cases, said, strict=True):
        twin = of_twins.get(one.path.with_suffix(".twin.edn"))
        found = compare.against_jepsen(one.entries, answer, twin)
        verdict = "throws" if answer.throws else "valid" if answer.valid else "invalid"
        if not one.mutations and compare.invalid(one.entries):
            found = compare.Compared(found.reasons, (*found.unexplained, "made valid, is not"))
        yield one, found, verdict


def compared(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    types: Counter[str] = Counter()
    unexplained: list[dict[str, Any]] = []

    def wrong(one: Case, what: Sequence[str], who: str) -> None:
        if what:
            kept = {"seed": one.seed, "mutations": one.mutations, "file": str(one.path)}
            unexplained.append({"who": who, **kept, "what": what})

    first = options.seed * 10_000_000
    for start in range(first, first + options.histories, BATCH):
        seeds = range(start, min(start + BATCH, first + options.histories))
        cases = [case(seed, directory) for seed in seeds]
        for one in cases:
            types.update({name for name, *_ in compare.reported(one.entries)})
        for one, found, verdict in judged(options.judge, cases) if options.judge else ():
            reasons.update(found.reasons)
            verdicts[verdict] += 1
            wrong(one, found.unexplained, "Jepsen")
        if options.check:
            answers = check.check([one.path for one in cases], directory / "runs")
            for one, answer in zip(cases, answers, strict=True):
                verdicts[f"check: {answer.verdict}"] += 1
                wrong(one, check.against_oracle(one.entries, answer), "check")
        print(f"{seeds[-1] - first + 1}: {len(unexplained)} unexplained", file=sys.stderr)
    return {
        "histories": options.histories,
        "seed": options.seed,
        "verdicts": dict(sorted(verdicts.items())),
        "found by the oracle": dict(types.most_common()),
        "reasons": {reason: reasons[reason] for reason in compare.REASONS},
        "unexplained": unexplained,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", type=Path, help="Jepsen's checker as a command.")
    parser.add_argument("--check", action="store_true", help="Ask `neaptide check` too.")
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="Where the histories are left.")
    parser.add_argument("--record", type=Path, help="Write down what the judge says of these.")
    options = parser.parse_args()
    if not (options.judge or options.check):
        parser.error("neither --judge nor --check: nothing to compare the oracle with")
    if options.record:
        if not options.judge:
            parser.error("--record: only a judge can say it")
        left = corpus.record(options.judge, options.record)
        print(json.dumps({"unexplained": left}, indent=2))
        sys.exit(1 if left else 0)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        result = compared(options, options.keep.absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="differential-") as scratch:
            result = compared(options, Path(scratch))
    print(json.dumps(result, indent=2))
    sys.exit(1 if result["unexplained"] else 0)


if __name__ == "__main__":
    main()
