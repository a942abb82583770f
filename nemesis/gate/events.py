"""What the gate reports, as plain values that become one line of JSON each.

The event names and their fields, the contract with `client.Gate`:

    ready              ports: {link name: port}
    round              phase: started | answered | delivered, and the numbers of the round;
                       only for subscriptions
    hold_started       the message: hold, rule, api, message, source, destination, partitions
    hold_sender_closed who sent the held message has closed the connection; the hold goes on
    hold_ended         how: released | discarded | closed (then closed_by: the end that closed)
    dropped, delayed, answered, capped    rule and message: what a rule has done to it
    rule_failed        rule, why: the gate cannot do it to that version of the message
    epoch_answered     follower, leader, topic, partition, error: an OffsetForLeaderEpoch response
                       was delivered; only for subscriptions
    epoch_learned      broker, topic, partition, leader, leader_epoch
    controller_answered    broker: it answered to this controller, with this error
    connection_opened, connection_closed    connection, link, source, destination
    malformed          connection, link, reason; a stream that is no frames is closed
    unread_version     api_key, api_version: passed, but neither counted nor matched
    rounds_not_reported    count: the reader of the events was too slow

Every event has `at_ns`.
"""

from __future__ import annotations

from typing import Any

from neaptide.nemesis.gate.lane import Hold
from neaptide.nemesis.gate.rules import PartitionFacts
from neaptide.nemesis.gate.said import Message, Round

Event = dict[str, Any]
PHASES = {"request": "started", "response": "answered"}


def round_event(entry: Round, phase: str, at_ns: int) -> Event:
    event: Event = {
        "event": "round",
        "phase": phase,
        "at_ns": at_ns,
        "follower": entry.follower,
        "leader": entry.leader,
        "topic": entry.topic,
        "partition": entry.partition,
        "leader_epoch": entry.leader_epoch,
        "round": entry.round,
        "fetch_offset": entry.fetch_offset,
    }
    if phase != "started":
        event["high_watermark"] = entry.high_watermark
        event["log_start_offset"] = entry.log_start_offset
        event["records_bytes"] = entry.records_bytes
        event["error"] = entry.error
    return event


def epoch_answered_event(message: Message, entry: PartitionFacts, at_ns: int) -> Event:
    """One partition of an OffsetForLeaderEpoch response that is on its way to the follower."""
    return {
        "event": "epoch_answered",
        "at_ns": at_ns,
        "follower": message.destination,
        "leader": message.source,
        "topic": entry.topic,
        "partition": entry.partition,
        "error": entry.numbers["error"],
    }


def message_fields(message: Message) -> Event:
    """What a message is, for the events about holds and drops."""
    facts = message.facts()
    return {
        "api": facts.api,
        "message": facts.message,
        "source": facts.source,
        "destination": facts.destination,
        "partitions": [
            {"topic": entry.topic, "partition": entry.partition, **entry.numbers}
            for entry in facts.partitions
        ],
    }


def hold_event(name: str, hold: Hold, at_ns: int) -> Event:
    event: Event = {"event": name, "at_ns": at_ns, "hold": hold.id, "rule": hold.rule}
    event |= message_fields(hold.message)
    event["held_ns"] = at_ns - hold.started_ns
    event["sender_closed"] = hold.sender_closed
    if hold.ended is not None:
        event["how"] = hold.ended
        event["closed_by"] = hold.closed_by
    return event
