"""KIP-226: what is set for a broker, or for all, while they run."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.coordination.znodes import ALL_BROKERS
from neaptide.clusters.broker.replication.settings import InvalidSettingError
from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.server.dynamic_settings import LEADER_RATE, DynamicSettings
from neaptide.clusters.broker.storage.config import SettingError
from tests.server.given import GOOD

OWN = f"brokers/{GOOD['broker.id']}"


def given(**of_file: str) -> tuple[DynamicSettings, list[int]]:
    """With the numbers of cleaner's pauses that were seen on each change."""
    seen: list[int] = []
    named = {name.replace("_", "."): value for name, value in of_file.items()}
    config = server_config({**GOOD, **named})
    one = DynamicSettings(config, lambda: seen.append(one.current.log_cleaner_backoff_ms))
    return one, seen


def test_a_brokers_own_value_goes_before_that_of_all_and_both_before_the_file() -> None:
    one, seen = given(log_cleaner_backoff_ms="1")
    one.take(ALL_BROKERS, {"log.cleaner.backoff.ms": "2"})
    one.take(OWN, {"log.cleaner.backoff.ms": "3"})
    one.take(ALL_BROKERS, {"log.cleaner.backoff.ms": "4"})
    assert one.of_all == {"log.cleaner.backoff.ms": "4"}
    one.take(OWN, {})
    one.take(OWN, {})  # which is no change
    one.take(ALL_BROKERS, {})
    assert seen == [2, 3, 3, 4, 1]


def test_what_is_no_setting_is_left_out_and_the_others_hold() -> None:
    one, seen = given()
    settings = {"min.insync.replicas": "two", "log.cleaner.backoff.ms": "9", "broker.id": "8"}
    one.take(OWN, settings)
    assert seen == [9]
    assert one.current.broker_id == server_config(GOOD).broker_id
    assert one.current.replication.min_insync_replicas == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.dirs", "/elsewhere"),
        ("no.such.setting", "1"),
        ("min.insync.replicas", "-x"),
        ("log.segment.bytes", "1"),
        (LEADER_RATE, "-1"),
    ],
)
def test_what_cannot_be_altered_is_refused_in_a_sentence(name: str, value: str) -> None:
    one, _ = given()
    with pytest.raises((InvalidSettingError, SettingError), match=name.replace(".", "[.]")):
        one.check(OWN, {name: value})


def test_requests_name_this_broker_or_by_nothing_all() -> None:
    one, _ = given()
    assert [one.entity(name) for name in ("", GOOD["broker.id"], "99")] == [ALL_BROKERS, OWN, None]


def test_a_rate_is_a_limit_where_it_is_set() -> None:
    one, _ = given(leader_replication_throttled_rate="not even a number")
    assert one.rate(LEADER_RATE) is None  # Kafka does not look into the file either
    one.take(ALL_BROKERS, {LEADER_RATE: "5"})
    assert one.rate(LEADER_RATE) == 5
