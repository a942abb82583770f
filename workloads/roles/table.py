"""The roles by name: what a process of clients can be asked to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.workloads.roles.append import AppendConsumer, AppendProducer, KeyedProducer
from neaptide.workloads.roles.groups import GroupMember
from neaptide.workloads.roles.role import Role
from neaptide.workloads.roles.transactions import StreamTask, Teller, TxnClient
from neaptide.workloads.roles.watching import Auditor, StableWatch

ROLES: Final[Mapping[str, type[Role]]] = {
    "producer": AppendProducer,
    "keyed-producer": KeyedProducer,
    "consumer": AppendConsumer,
    "txn-client": TxnClient,
    "stream-task": StreamTask,
    "teller": Teller,
    "auditor": Auditor,
    "stable-watch": StableWatch,
    "member": GroupMember,
}
