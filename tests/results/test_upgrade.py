"""What changes from one version to another, out of saved runs; each change beside its twins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from neaptide.results.matrix import assemble
from neaptide.results.report.upgrade_page import write_upgrade
from neaptide.results.run import read_run
from neaptide.results.store import write_run
from neaptide.results.upgrade import CHANGES, Upgrade, compare
from tests.results.matrices import save

OLD, NEW = "kafka:3.9.0", "kafka:4.4.0"


@dataclass(frozen=True)
class Settings:
    used: Mapping[str, str]
    left_out: Mapping[str, str]


def upgrade(runs: Path, before: tuple[str, ...], after: tuple[str, ...]) -> Upgrade:
    for system, outcomes in ((OLD, before), (NEW, after)):
        for number, outcome in enumerate(outcomes):
            why = ("nothing was read",) if outcome == "unknown" else ()
            save(runs, f"{system}-{number}", outcome, system=system, reasons=why)
    return compare(assemble(list(runs.iterdir())), OLD, NEW, {"other": "it has no ZooKeeper"})


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (("lost",), ("held",), "fixed"),
        (("lost",), ("lost",), "open"),
        (("lost",), ("diverged",), "open"),
        (("held",), ("lost",), "new"),
        (("held",), ("held",), "held"),
        (("held", "lost"), ("held", "held"), "fixed"),  # once is enough
        (("held", "held"), ("held", "lost"), "new"),
        (("unknown", "lost"), ("held",), "fixed"),
        (("unknown",), ("lost",), "unknown"),
        (("lost",), ("unknown",), "unknown"),
        (("lost",), ("held", "unknown"), "unknown"),  # not all of them held
        (("held", "unknown"), ("lost",), "unknown"),
    ],
)
def test_a_scenario_is_of_one_change(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...], change: str
) -> None:
    document = upgrade(tmp_path, before, after).to_json()
    assert {name: len(document[name]) for name in CHANGES if document[name]} == {change: 1}
    [one] = document[change]
    assert sum(one["before"].values()) == len(before)
    assert one["reasons"] == (["nothing was read"] if "unknown" in (*before, *after) else [])
    assert (document["from"], document["to"]) == (OLD, NEW)


def test_bugs_come_first(tmp_path: Path) -> None:
    for name, kind in (("a", "by design"), ("b", "bug")):
        for system in (OLD, NEW):
            run = save(tmp_path, f"{name}-{system}", "lost", system=system)
            changed = replace(read_run(run), name=name, schedule={"kind": {"lost": kind}})
            write_run(run, changed)
    found = compare(assemble(list(tmp_path.iterdir())), OLD, NEW, {})
    assert [one.scenario for one in found.of("open")] == ["b", "a"]


def test_what_was_played_on_one_of_them_alone_is_not_compared(tmp_path: Path) -> None:
    found = upgrade(tmp_path, ("lost",), ())
    assert found.compared == ()
    assert found.to_json()["not_played"] == {"other": "it has no ZooKeeper"}


def test_the_page_has_every_change_the_settings_and_links_to_the_reports(tmp_path: Path) -> None:
    found = upgrade(tmp_path / "runs", ("lost",), ("held",))
    settings = Settings({"min.insync.replicas": "2"}, {"listeners": "why <so>"})
    page = write_upgrade(found, settings, tmp_path / "deep" / "page.html")
    text = page.read_text(encoding="utf-8")
    assert "Fixed: did not hold before" in text
    assert "Open:" not in text
    assert 'href="../runs/kafka:3.9.0-0/report.html"' in text
    assert "A title &lt;with&gt; signs" in text
    assert "why &lt;so&gt;" in text
    assert "it has no ZooKeeper" in text
