"""The settings of a broker process: what is taken, and in what words the rest is refused."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.settings import InvalidSettingError
from neaptide.clusters.broker.server.config import server_config, trimmed
from neaptide.clusters.broker.storage.config import SettingError
from neaptide.clusters.properties import PropertiesError, read_properties, write_properties
from tests.server.given import GOOD


def test_good_settings_are_taken_with_kafkas_defaults() -> None:
    config = server_config(GOOD)
    assert config.broker_id == 7
    assert config.advertised == config.listeners
    assert [endpoint.port for endpoint in config.listeners] == [9092, 9093]
    assert config.zookeeper_session_timeout_ms == 6_000
    assert config.socket_request_max_bytes == 104_857_600


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("broker.id", "seven", "broker.id must be a whole number from 0 on, not 'seven'"),
        ("broker.id", "-1", "broker.id must be a whole number from 0 on"),
        ("broker.id", "", "broker.id is not set"),
        ("neaptide.generation", "9.9", "neaptide.generation must be one of"),
        ("listeners", "127.0.0.1:9092", "is not of the form NAME://host:port"),
        ("listeners", "CLIENT://127.0.0.1:99999", "is not of the form NAME://host:port"),
        ("listeners", "A://127.0.0.1:1,A://127.0.0.1:2", "each needs a name of its own"),
        ("inter.broker.listener.name", "OTHER", "but listeners has CLIENT, REPLICATION"),
        ("advertised.listeners", "CLIENT://127.0.0.1:1", "must name the same listeners"),
        ("zookeeper.connect", "nowhere", "zookeeper.connect must be of the form"),
        ("log.dirs", "/one, /one", "log.dirs names a log directory twice"),
        ("log.dirs", "/one,", "log.dirs has a comma too many"),
        ("log.segment.bytes", "large", "log.segment.bytes"),
        ("min.insync.replicas", "two", "min.insync.replicas must be a whole number"),
        ("unclean.leader.election.enable", "maybe", "must be true or false"),
    ],
)
def test_a_wrong_setting_is_refused_in_a_sentence_that_names_it(
    name: str, value: str, complaint: str
) -> None:
    with pytest.raises((InvalidSettingError, SettingError)) as raised:
        server_config({**GOOD, name: value})
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_properties_are_read_as_they_were_written() -> None:
    assert read_properties(write_properties(GOOD)) == GOOD
    assert read_properties("# a comment\n! another\n\n a = b=c\n") == {"a": "b=c"}
    with pytest.raises(PropertiesError, match="line 2 is not of the form name=value"):
        read_properties("a=b\nnonsense\n")


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a: b\nc d\n", {"a": "b", "c": "d"}),
        ("listeners=A://h:1,\\\n    B://h:2\n", {"listeners": "A://h:1,B://h:2"}),
        ("a\\:b = \\u00e9\\n\n", {"a:b": "é\n"}),
        ("a=\n", {"a": ""}),
        ("#=\na=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, settings: dict[str, str]) -> None:
    assert read_properties(text) == settings
    assert read_properties(write_properties(settings)) == settings


def test_properties_have_escapes_only_where_java_needs_them() -> None:
    settings = {"listeners": "A://h:1,B://h:2", "log.dirs": "C:\\é", "a:b": " c"}
    written = write_properties(settings)
    assert "listeners=A://h:1,B://h:2\n" in written
    assert written.isascii()
    assert read_properties(written) == settings


def test_an_escape_that_java_does_not_know_is_named_by_its_line() -> None:
    with pytest.raises(PropertiesError, match="line 3 has an escape"):
        read_properties("a=1\\\n 2\nb=\\u12\n")


def test_spaces_around_a_value_are_no_part_of_it() -> None:
    given = read_properties("min.insync.replicas=2 \nauto.create.topics.enable=false \n")
    replication = server_config({**GOOD, **trimmed(given)}).replication
    assert replication.min_insync_replicas == 2
    assert replication.auto_create_topics_enable is False
