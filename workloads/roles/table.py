"""The roles by name: what a process of clients can be asked to be.

A role of a workload outside of this project is named by its class: `shop.load:OrderClient`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Final

from neaptide.workloads.roles.append import AppendConsumer, AppendProducer, KeyedProducer
from neaptide.workloads.roles.groups import GroupMember
from neaptide.workloads.roles.role import Role
from neaptide.workloads.roles.sharing import ShareMember
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
    "share-member": ShareMember,
}


def find_role(name: str) -> type[Role]:
    """Raises LookupError for a name that is none, TypeError for a class that is none."""
    if name in ROLES:
        return ROLES[name]
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"There is no role {name!r}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Role)):
        raise TypeError(f"{name} must be a class derived from neaptide.workloads.roles.role.Role.")
    return found
