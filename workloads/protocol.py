"""The words between the harness and a process of clients: one JSON object a line, both ways.

Harness → clients, each with an `id` that the answer repeats:
    produce   topic, partition, acks, values, to, key  answered at once; completions are events
    consume   topic, partition, phase, end        reads from 0 to `end` (None: the high watermark)
    consume_as  group, topic, partition           as a consumer of a group, which then commits
    position  group, topic, partition             asks where a group goes on, at the end of a run
    load      topic, partitions, acks, rate       sends and polls until stop_load
    stop_load                                     answered when every send has completed; `left`:
                                                  how many had not when it was given up
    begin     role, index, of, topics, …          a client of a workload (roles.role.Task)
    progress                                      counts of all that its clients did
    stop      senders                             those that send stop, or all others
    finish    deadline_s                          answered when all have ended
    open      name, kind, topic, group, …          a client that a scenario drives: see driven
    drive     client, act, arguments              what it is to do; answered when that is done
    flush                                         what was recorded can be read
Clients → harness:
    {"id", "ok", "result" | "error"}              answers
    {"event": "sent", "value", "type", "offset", "error"}       a scripted send has completed
    {"event": "polled", "value", "offset"}                      a scripted consumer has read
    {"event": "committed", "group", "partition", "offset"}      a commit was acknowledged
    {"event": "client_failed", "why"}              a client of a workload has ended early
    {"event": "notified" | "assigned" | "handled", "client", …}      of a client that is driven
    {"event": "written", "files", "rows"}          what can be read now: at each file, and last
    {"event": "recorder_failed", "why"}            rows were lost; nothing is recorded any more
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from neaptide.workloads.libraries.table import DEFAULT

# A variable of the environment: settings as JSON that the file of the configuration is not to have.
SECRET_SETTINGS: Final = "NEAPTIDE_CLIENT_SETTINGS"


@dataclass(frozen=True, slots=True)
class ClientsConfig:
    """What a process of clients is started with (as JSON)."""

    run: str
    number: int
    clock_origin_ns: int
    bootstrap: str
    settings: dict[str, str]  # more librdkafka settings, of the user
    producer: dict[str, str] = field(default_factory=dict)  # … of producers alone
    library: str = DEFAULT  # of the clients of a workload
    program: list[str] = field(default_factory=list)  # a user's client: it does what is scripted
    journal: bool = False  # it may be killed or cut off: what its clients will do is noted before

    @property
    def directory(self) -> Path:
        return Path(self.run)
