"""A scenario in words: what will be done, in which order, and why. Nothing is run here.

One row for each kind of step; a step that has none is a mistake, which a test would find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from neaptide.nemesis import steps
from neaptide.nemesis.scenario import Scenario, ScheduledStep, Topic


def explained(scenario: Scenario) -> Iterator[str]:
    """Line by line."""
    yield f"{scenario.title}."
    if scenario.source:
        yield f"It comes from {', '.join(scenario.source)}."
    yield ""
    yield from _cluster(scenario)
    yield ""
    yield "Before the first step every follower fetches from its leader. Then:"
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
    said = in_words(scheduled.step)
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


def in_words(step: steps.Step) -> str:
    return _WORDS[type(step)](step)


def _rule(what: str) -> Callable[[Any], str]:
    def words(step: steps.MessageRule) -> str:
        kind = "message" if step.api == "any" else step.api
        times = {None: "every", 1: "the next"}.get(step.times, f"the next {step.times}")
        condition = f" for which {step.where}" if step.where else ""
        done = what.format(step=step)
        ends = f"from {step.source} to {step.destination}"
        return f"{done} {times} {kind} {step.message} {ends}{condition}  [{step.name}]"

    return words


def _produce(step: steps.Produce) -> str:
    size = f", {step.size_bytes} bytes each" if step.size_bytes else ""
    to = f", by a client that knows {step.to} only" if step.to else ""
    return f"sends {', '.join(step.records)} with acks={step.acks}{size}{to}"


def _consume(step: steps.Consume) -> str:
    if step.group is None:
        return "reads from the beginning to the high watermark"
    return f"reads from the position of the group {step.group}, and commits the new position"


def _end(name: str | None) -> str:
    return name or "anybody"


def _cut(step: steps.Cut) -> str:
    way = "between" if step.both else "from"
    join = "and" if step.both else "to"
    what = f" ({step.purpose})" if step.purpose else ""
    return f"cuts the link {way} {step.source} {join} {step.destination}{what}"


def _power_off(who: str, survives: str | None) -> str:
    kept = f"; records up to {survives} had reached the disk" if survives else ""
    return f"cuts the power of {who}: what was not flushed to disk is gone{kept}"


def _open(step: steps.OpenClient) -> str:
    of = f" of the group {step.group}" if step.group else ""
    of += f" with the transactional id {step.transactional_id}" if step.transactional_id else ""
    settings = ", ".join(f"{name}={value}" for name, value in step.settings)
    return f"starts {step.name}, a {step.kind}{of}{f' ({settings})' if settings else ''}"


def _inject(step: steps.Inject) -> str:
    effects = [] if step.error is None else [f"fails with {step.error}"]
    effects += [f"takes {step.delay_ms} ms longer"] if step.delay_ms else []
    first = "every" if step.nth == 1 else f"from number {step.nth} on, every"
    return (
        f"{first} {step.call} of {step.broker} on the {step.file} of partition {step.partition}"
        f" {' and '.join(effects)}"
    )


def _toxic(step: steps.AddToxic) -> str:
    ends = {
        "client": f"{step.broker} and its clients",
        "replication": f"{step.broker} and its followers",
        "coordination": f"{step.broker} and the coordination service",
    }
    numbers = ", ".join(f"{name} = {value}" for name, value in step.toxic.attributes.items())
    return (
        f"puts a toxic on the link between {ends[step.purpose]}: {step.toxic.kind},"
        f" {step.toxic.stream} ({numbers})  [{step.name}]"
    )


def _an(election: steps.Election) -> str:
    return "a preferred" if election == "preferred" else "an unclean"


def _measure(step: steps.Measure) -> str:
    return (
        f"measures the time since {step.since_last_fetch_of}'s last fetch: more than"
        f" {step.above:g} and at most {step.at_most:g} × {step.unit}"
    )


_WORDS: Final[Mapping[type, Callable[[Any], str]]] = {
    steps.Produce: _produce,
    steps.Consume: _consume,
    steps.Load: lambda s: f"sends {s.rate:g} records a second with acks={s.acks}, and reads",
    steps.StopLoad: lambda s: "ends the load",
    steps.Hold: _rule("holds"),
    steps.Drop: _rule("loses, and so breaks the connection of,"),
    steps.Delay: _rule("delays by {step.delay_ms} ms"),
    steps.Answer: _rule("answers with {step.error}"),
    steps.Cap: lambda s: f"makes {s.source} offer no {s.api} above version {s.version}  [{s.name}]",
    steps.Deliver: lambda s: f"delivers what {s.rule} holds, although its sender has gone",
    steps.Release: lambda s: f"releases what {s.rule} holds, and ends that rule",
    steps.Discard: lambda s: f"throws away what {s.rule} holds, and ends that rule",
    steps.Kill: lambda s: f"kills {s.broker} (SIGKILL); what it had sent is {s.in_flight}",
    steps.KillTogether: lambda s: (
        f"kills {', '.join(s.brokers)} at one moment; what they had sent is {s.in_flight}"
    ),
    steps.PowerOff: lambda s: _power_off(s.broker, s.survives),
    steps.PowerOffTogether: lambda s: _power_off(", ".join(s.brokers), s.survives),
    steps.Stop: lambda s: f"shuts {s.broker} down cleanly",
    steps.Restart: lambda s: f"starts {s.broker} again",
    steps.Pause: lambda s: f"pauses {s.broker} (SIGSTOP)",
    steps.Resume: lambda s: f"resumes {s.broker} (SIGCONT)",
    steps.RemoveVoter: lambda s: f"removes {s.broker} from the voters of the quorum",
    steps.AddVoter: lambda s: f"makes {s.broker} a voter of the quorum again",
    steps.Reassign: lambda s: (
        f"asks for the replicas {', '.join(s.replicas)} of partition {s.partition}"
    ),
    steps.Elect: lambda s: f"asks for {_an(s.election)} election for partition {s.partition}",
    steps.MoveController: lambda s: "deletes /controller: a controller is elected again",
    steps.Cut: _cut,
    steps.Slow: lambda s: f"slows bytes from {s.source} to {s.destination} by {s.delay_ms} ms",
    steps.AddToxic: _toxic,
    steps.EndToxic: lambda s: f"ends the toxic {s.name}",
    steps.Heal: lambda s: (
        f"heals the link between {_end(s.source)} and {_end(s.destination)}"
        if s.source
        else "heals all cuts, delays and toxics"
    ),
    steps.Measure: _measure,
    steps.SetClock: lambda s: f"sets {s.broker}'s clock {s.ahead_ms:+} ms from the real one",
    steps.Damage: lambda s: (
        f"damages {s.broker}'s disk: {s.kind}"
        f"{'' if s.kind == 'lost-directory' else f' ({s.file} of partition {s.partition})'}"
    ),
    steps.KeepSnapshot: lambda s: f"copies {s.broker}'s log directory",
    steps.PutBack: lambda s: f"puts {s.broker}'s log directory back as it was copied",
    steps.Inject: _inject,
    steps.EndInjections: lambda s: f"{s.broker}'s disk is well again",
    steps.Await: lambda s: "does nothing",
    steps.OpenClient: _open,
    steps.Begin: lambda s: f"{s.client} begins a transaction",
    steps.Send: lambda s: f"{s.client} sends {', '.join(s.records)}",
    steps.EndTransaction: lambda s: (
        f"{s.client} {'commits' if s.commits else 'aborts'} its transaction"
    ),
    steps.Subscribe: lambda s: f"{s.client} joins its group, and waits for a partition",
    steps.Assign: lambda s: f"{s.client} assigns itself partition {s.partition}",
    steps.Poll: lambda s: f"{s.client} takes {s.records} records, or receives an error",
    steps.Handle: lambda s: f"{s.client} handles what it has taken",
    steps.CommitOffsets: lambda s: (
        f"{s.client} commits {'its position' if s.offset is None else s.offset}"
        f"{'' if s.waits else ', and does not wait'}"
    ),
    steps.Stall: lambda s: f"{s.client} polls no more; its heartbeats go on",
    steps.Wake: lambda s: f"{s.client} polls again",
    steps.Die: lambda s: f"kills the client {s.client} (SIGKILL)",
    steps.Leave: lambda s: f"{s.client} closes",
}
