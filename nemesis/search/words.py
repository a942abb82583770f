"""Schedules in words: a line that people read, and one by which the same schedules are known."""

from __future__ import annotations

from typing import Final

from neaptide.clusters.simulation.network import CONTROL_APIS
from neaptide.nemesis import steps
from neaptide.nemesis.search.shrink import Schedule
from neaptide.nemesis.search.targets import NAMES
from neaptide.nemesis.steps import ALTER_PARTITION


def in_words(schedule: Schedule) -> str:
    """A schedule in a line."""
    return ", ".join(_word(step) for step in schedule)


def _word(step: steps.Step) -> str:
    match step:
        case steps.Produce(records, acks):
            to = f" to {step.to}" if step.to else ""
            where = f" in {step.partition}" if step.partition else ""
            return f"produce {' '.join(records)} acks={acks}{where}{to}"
        case steps.Hold():
            named = (*CONTROL_APIS.values(), ALTER_PARTITION)
            what = step.api if step.api in named else step.message
            return f"hold {what} {step.source}→{step.destination}"
        case steps.Cut():
            return f"cut {step.source}{'↔' if step.both else '→'}{step.destination}"
        case steps.Consume(_, str(group)):
            return f"read on as {group}, commit"
        case steps.Consume(partition):
            return f"read {partition} to the end" if partition else "read to the end"
        case steps.PowerOff(broker, survives):
            return f"power off {broker}" + (f" after {survives}" if survives else "")
        case steps.Kill() | steps.Stop() | steps.Restart() | steps.Pause() | steps.Resume():
            return f"{step.verb} {step.broker}"
        case steps.Reassign(replicas, partition):
            where = f" of {partition}" if partition else ""
            return f"reassign{where} to {' '.join(replicas)}"
        case steps.Elect(partition, election):
            what = "elect" if election == "preferred" else "elect uncleanly"
            return f"{what} in {partition}" if partition else what
    return _BARE.get(type(step), step.verb)


_BARE: Final = {steps.Await: "wait", steps.MoveController: "move the controller"}


def signature(schedule: Schedule) -> str:
    """The same for schedules that differ in the brokers' names alone."""
    line = in_words(schedule)
    renaming: dict[str, str] = {}
    for letter in line:
        if letter in NAMES and letter not in renaming:
            renaming[letter] = f"{len(renaming) + 1}"
    return "".join(renaming.get(letter, letter) for letter in line)
