"""A misspelt setting is refused with the nearest name; what a plug-in may read is not."""

from __future__ import annotations

import pytest

from neaptide.clusters.settings import known_settings, problem_of


@pytest.mark.parametrize(
    ("name", "has_plugins", "says"),
    [
        ("min.insync.replica", True, "did you mean 'min.insync.replicas'?"),
        ("replica.lag.max.ms", True, "did you mean 'replica.lag.time.max.ms'?"),
        ("unclean.leader.elections.enable", True, "did you mean 'unclean.leader.election.enable'?"),
        ("retention.mss", True, "did you mean 'retention.ms'?"),
        ("my.authorizer.secrets", False, "no release of Kafka has a setting"),
        ("my.authorizer.secrets", True, None),
        ("listener.name.external.ssl.keystore.key", True, None),
        ("neaptide.generation", False, None),
        ("log.dirs", True, "is set by neaptide itself: leave it out"),
        *((name, False, None) for name in ("replica.lag.max.messages", "segment.bytes")),
    ],
)
def test_what_is_wrong_with_a_setting(name: str, has_plugins: bool, says: str | None) -> None:
    problem = problem_of(["min.insync.replicas", name], has_plugins=has_plugins)
    assert (problem is None) == (says is None), problem
    assert says is None or says in str(problem)


def test_the_names_are_those_of_four_releases() -> None:
    assert len(known_settings()) > 450
