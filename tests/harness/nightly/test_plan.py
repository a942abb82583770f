"""A plan is read whole, and what is wrong with it is one sentence that names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.duration import parse_duration_s
from neaptide.clusters.errors import UsageError
from neaptide.harness.nightly.plan import Plan, load_plan, parse_bytes, read_plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("system = ['neaptide:2.1']", "there is no 'system'; it must be one of systems, hosts"),
        ("systems = 'neaptide:2.1'", 'systems: it must be a list, as ["…"]'),
        ("systems = []", "systems: it must not be empty"),
        ("systems = [1]", 'systems: it must be a text, as "…"'),
        ("systems = ['neaptide:2.1', 'neaptide:2.1']", "systems: names something twice"),
        ("workloads = ['shop']", "workloads: There is no workload 'shop'; it must be one of"),
        ("clients = ['curl']", "clients: there is no client 'curl'; it must be one of"),
        ("faults = ['kill,boom']", "faults: There is no fault 'boom'; it must be one of"),
        ("acks = ['2']", "acks: '2' must be 0, 1 or all"),
        ("idempotence = ['yes']", "idempotence: it must be true or false"),
        ("brokers = [10]", "brokers: input should be less than or equal to 9"),
        ("time = 'soon'", "time: 'soon' is no duration, as 90s"),
        ("settings = ['a']", "settings: it must be a table"),
        ("settings.a = 1", 'settings.a: it must be a list, as ["…"]'),
        ("keep = '20 gigs'", "keep: '20 gigs' is no size, as 20GB or 500MB"),
        ("time = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_plan(file)
    said = str(caught.value)
    assert said.startswith((f"{file}: ", f"The plan {file} "))
    assert says in said
    assert said.endswith(".")
    assert "\n" not in said


def test_a_plan_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match=r"The plan no\.toml cannot be read: No such file"):
        load_plan(Path("no.toml"))


def test_known_directories_are_beside_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('known = ["regressions"]\ntime = 30', encoding="utf-8")
    plan = load_plan(file)
    assert plan.known == [str(tmp_path / "regressions")]
    assert plan.time == 30.0


def test_what_a_plan_does_not_say_has_a_value_and_it_survives_a_journal() -> None:
    plan = read_plan({"settings": {"min.insync.replicas": ["1", "2"]}}, "x")
    assert plan.systems == ["neaptide:4.0"]
    assert plan.keep_bytes == 20 * 10**9
    assert read_plan(plan.model_dump(), "journal") == plan
    assert plan != Plan()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200),
        ("90m", 5400),
        ("1h30m", 5400),
        ("45s", 45),
        ("0.5h", 1800),
        ("2", 2),
        ("1d", 86_400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "2 h", "-1h", "2w", "2.", "30m1h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration, as 90s"):
        parse_duration_s(text)


def test_sizes() -> None:
    assert [parse_bytes(text) for text in ("20GB", "1.5 MB", "3kB", "7B")] == [
        20 * 10**9, 1_500_000, 3_000, 7,
    ]  # fmt: skip
