"""Mutants of controlled shutdown: who takes over what a stopping broker leads.

The broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import partition_state_machine
from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.nemesis.search.mutants.mutant import ONE, rule

# The core's own rules, whatever stands in their places while a mutant is searched.
_decide = partition_state_machine.decide_state.own
RELIEVED = {"controlled.shutdown.enable": "true"}


def hands_over_to_anyone(
    broker: Broker, controller: Active, tp: TopicPartition, state: LeaderAndIsr | None
) -> LeaderAndIsr | None:
    if state is None or state.leader not in controller.shutting_down:
        return _decide(broker, controller, tp, state)
    others = [
        replica
        for replica in controller.replicas(tp)
        if replica in controller.brokers and replica not in controller.shutting_down
    ]
    if not others:
        return _decide(broker, controller, tp, state)
    isr = tuple(r for r in controller.replicas(tp) if r == others[0] or r in state.isr)
    return replace(
        state,
        leader=others[0],
        leader_epoch=state.leader_epoch + 1,
        isr=tuple(r for r in isr if r not in controller.shutting_down),
        controller_epoch=controller.controller_epoch,
    )


MUTANTS = (
    rule(
        "hands-over-to-anyone",
        partition_state_machine.decide_state,
        hands_over_to_anyone,
        "What a stopping broker leads is led by the next that lives, whether or not it is in sync.",
        settings=RELIEVED,
        faults=("stop", "kill", "hold", "wait"),
        topic_settings=ONE,
    ),
)
