"""The commands `list`, `new`, `schema`, `explain`: what there is to play, and what it will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import PLACES
from neaptide.harness.cli import completion
from neaptide.harness.cli.options import Json
from neaptide.harness.terminal import output

if TYPE_CHECKING:
    from neaptide.nemesis.scenario import Scenario

_OF_A_MIXTURE = (
    "neaptide:4.0 has the rules of Kafka 4.0 with ZooKeeper: a mixture that never was released."
)


def list_(json: Json = False) -> None:
    """List scenarios, systems, workloads, faults and hosts."""
    from neaptide.clusters.kafka.artifacts import where
    from neaptide.harness.scenarios.catalog import documented, scenario_files
    from neaptide.harness.scenarios.systems import KNOWN
    from neaptide.nemesis.drawn.faults import FAULTS
    from neaptide.nemesis.scenario import expected_outcome
    from neaptide.nemesis.scenario_file import SUBJECTS
    from neaptide.workloads.catalog import WORKLOADS

    scenarios = [scenario for _, scenario in documented([])]
    if json:
        output.print_json(
            {
                "scenarios": [
                    {
                        "name": s.name,
                        "teaches": s.teaches,
                        "title": s.title,
                        "source": list(s.source),
                        "kind": dict(s.kind),
                        "outcomes": {outcome: list(on) for outcome, on in s.expect.items()},
                        "not_served": dict(s.not_served),
                        "expected": {k: expected_outcome(s, k) for k in KNOWN},
                        "file": str(scenario_files()[s.name]),
                    }
                    for s in by_subject(scenarios)
                ],
                "systems": list(KNOWN),
                "jars": where(),
                "workloads": list(WORKLOADS),
                "faults": list(FAULTS),
                "faults_explained": {name: kind.what for name, kind in FAULTS.items()},
                "hosts": list(PLACES),
            }
        )
        return
    for subject in SUBJECTS:
        rows = [_row(scenario) for scenario in scenarios if scenario.teaches == subject]
        output.print_table(("scenario", "what is shown", "source", "outcome"), rows, subject)
    output.out.print(f"systems: {', '.join(KNOWN)}, kafka:VERSION, FILE.toml", markup=False)
    output.out.print(_OF_A_MIXTURE, markup=False)
    output.out.print(f"jars of kafka:VERSION: {where()}", markup=False)
    output.out.print(f"workloads: {', '.join(WORKLOADS)}", markup=False)
    output.print_table(("fault", "what it does"), [(n, k.what) for n, k in FAULTS.items()])
    output.out.print(f"hosts: {', '.join(PLACES)}", markup=False)


def by_subject(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """In the order of the subjects; those that name none are last."""
    from neaptide.nemesis.scenario_file import SUBJECTS

    order: Mapping[str | None, int] = {subject: n for n, subject in enumerate(SUBJECTS)}
    return sorted(scenarios, key=lambda s: (order.get(s.teaches, len(SUBJECTS)), s.name))


def _row(scenario: Scenario) -> tuple[str, str, str, str]:
    kinds = {outcome: f" ({kind})" for outcome, kind in scenario.kind.items()}
    lines = [f"{o}{kinds.get(o, '')}: {', '.join(on)}" for o, on in scenario.expect.items()]
    lines += [f"not served: {systems}" for systems in scenario.not_served]
    return scenario.name, scenario.title, "; ".join(scenario.source), "\n".join(lines)


def new(
    file: Annotated[Path, typer.Argument(help="The file to write, such as my.toml.")],
) -> None:
    """Write a scenario file with comments, to start from."""
    if file.suffix != ".toml":
        raise UsageError(f"{file} must end in .toml: so does every scenario.")
    template = files("neaptide.harness.cli") / "new_scenario.toml"
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(template.read_text(encoding="utf-8"))
    except FileExistsError:
        raise UsageError(f"{file} exists already; choose another name.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    output.out.print(f"{file} is written; neaptide explain {file} explains it.", markup=False)


def schema() -> None:
    """Print the JSON Schema of scenario files, by which editors complete and check them."""
    from neaptide.nemesis.scenario_file import scenario_schema

    output.print_json(scenario_schema())


def explain(
    scenario: Annotated[
        str,
        typer.Argument(
            help="FILE.toml, or the name of one that ships.", autocompletion=completion.scenarios
        ),
    ],
) -> None:
    """Explain in words what a scenario does and why, without playing it."""
    from neaptide.harness.scenarios.explain import explained

    for line in (line for one in _named(scenario) for line in explained(one)):
        output.out.print(line, markup=False, highlight=False, soft_wrap=True)


def _named(name: str) -> list[Any]:
    from neaptide.harness.scenarios.catalog import documented
    from neaptide.nemesis.scenario import load_scenario

    if name.endswith(".toml"):
        return [load_scenario(Path(name))]
    return [scenario for _, scenario in documented([name])]
