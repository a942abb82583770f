"""A scenario in words: what will be done, in which order, and why. Nothing is run here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from neaptide.nemesis.scenario import Scenario, ScheduledStep, Topic


def explained(scenario: Scenario) -> Iterator[str]:
    """Line by line."""
    yield f"{scenario.title}."
    if scenario.source:
        yield f"It comes from {', '.join(scenario.source)}."
    yield ""
    yield from _cluster(scenario)
    yield ""
    if scenario.run is None:
        yield "Before the first step every follower fetches from its leader. Then:"
    else:
        yield f"Under the load of `neaptide run {shlex.join(scenario.run)}`:"
    for number, scheduled in enumerate(scenario.steps, start=1):
        yield from _step(number, scheduled)
    yield ""
    yield (
        "Then everything is undone: held messages are released, cuts are healed, brokers that are"
        " down start. When the replicas are level, or will never be, the partition is read to its"
        " end, and every replica's log from its disk."
    )
    yield ""
    yield from _expected(scenario)


def _cluster(scenario: Scenario) -> Iterator[str]:
    first = scenario.start_order[0]
    names = ", ".join(scenario.brokers)
    yield f"The cluster: brokers {names}; {first} starts first, and is the controller."
    for topic in (scenario.topic, scenario.offsets, scenario.transactions):
        if topic is not None:
            yield f"  {_topic(topic)}"
    for name, value in scenario.settings.items():
        yield f"  {name} = {value}"
    options = scenario.producer
    if options.idempotence:
        yield "Producers are idempotent, and send again until a record's time is over."
    elif options.retries:
        yield f"Producers send a record again, up to {options.retries} times."
    if options.max_in_flight > 1:
        yield f"Up to {options.max_in_flight} requests of a producer are on their way at a time."


def _topic(topic: Topic) -> str:
    partitions = "; ".join(
        f"partition {number} on {', '.join(replicas)}, and {replicas[0]} leads"
        for number, replicas in enumerate(topic.assignment)
    )
    settings = ", ".join(f"{name} = {value}" for name, value in topic.settings.items())
    return f"topic {topic.name}: {partitions}{f' ({settings})' if settings else ''}"


def _step(number: int, scheduled: ScheduledStep) -> Iterator[str]:
    said = scheduled.step.words()
    if scheduled.at_s is not None:
        lasts = f", for {scheduled.lasts_s:g} s" if scheduled.lasts_s else ""
        said = f"at {scheduled.at_s:g} s{lasts}: {said}"
    if scheduled.why:
        yield f"{number:3}. ({scheduled.why})"
        yield f"     {said}"
    else:
        yield f"{number:3}. {said}"
    if scheduled.until is not None:
        yield f"     then waits until {scheduled.until.text}, at most {scheduled.within_s:g} s"


def _expected(scenario: Scenario) -> Iterator[str]:
    yield "What is expected:"
    for outcome, systems in scenario.expect.items():
        yield f"  {outcome} on {', '.join(systems)}"
    if scenario.expected_rounds:
        yield f"  {len(scenario.expected_rounds)} fetch rounds with the numbers in the file"
    for sight in scenario.expect_seen:
        yield f"  at the end {sight.condition.text}: on {', '.join(sight.systems)}"
    for systems_lacking, what in scenario.not_served.items():
        yield f"  not played on {systems_lacking}: {what}"
