"""The host `netns`: every node is a network namespace of this machine, on a bridge of its own.

Processes, disk and time are this machine's: only the network is a node's own. The bridge has a
private subnet and leads nowhere else; the harness is its first address. Needs root, ip and nft.
All that is made is in the ledger before it exists.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from neaptide.clusters.errors import HostError, MissingPartError
from neaptide.clusters.hosts.here import SharedDisk
from neaptide.clusters.hosts.host import Drop, LocalNodeProcess, NodeName
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec
from neaptide.clusters.hosts.node_ports import NodePort, NodePorts
from neaptide.clusters.hosts.packet_filter import TABLE, dropped_packets, render
from neaptide.clusters.hosts.run_tool import ToolError, run_tool
from neaptide.clusters.hosts.subnet import SubnetClaim, claim_subnet

NAMESPACE: Final = "network namespace"
BRIDGE: Final = "bridge"
_NODE_ADDRESS: Final = 10  # of node 0
_TOOLS: Final = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux"}


def check() -> None:
    """Raises MissingPartError where this machine cannot do it."""
    if os.geteuid() != 0:
        raise MissingPartError(
            "The host netns needs root, to make network namespaces: run the command as root, or"
            " choose --host local."
        )
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise MissingPartError(
                f"The host netns needs the command {tool}: install the package {package}."
            )
    try:
        run_tool(("unshare", "--net", "true"))
    except ToolError as error:
        raise MissingPartError(
            f"The host netns needs a machine on which root may make network namespaces ({error}):"
            " choose --host local."
        ) from error
    try:
        run_tool(("nft", "list", "tables"))
    except ToolError as error:
        raise MissingPartError(
            f"The host netns needs a kernel with nf_tables, and nft does not find it ({error}):"
            " choose --host local."
        ) from error


def remove_namespace(name: str) -> bool:
    """What runs in it and its links go first: a process, or a connection that waits for its end,
    would keep the namespace without its name, and its links with it."""
    return _remove(name, ("netns", "list"), ("netns", "delete", name), _empty)


def remove_bridge(name: str) -> bool:
    shown = ("-brief", "link", "show", "type", "bridge")
    return _remove(name, shown, ("link", "delete", name))


def _empty(namespace: str) -> None:
    for pid in run_tool(("ip", "netns", "pids", namespace)).split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    links = run_tool(("ip", "-n", namespace, "-brief", "link", "show", "type", "veth"))
    for line in links.splitlines():
        run_tool(("ip", "-n", namespace, "link", "delete", line.split()[0].partition("@")[0]))


def _remove(
    name: str,
    listing: Sequence[str],
    deletion: Sequence[str],
    before: Callable[[str], None] = lambda name: None,
) -> bool:
    """False: it cannot be done now, for want of rights or of ip."""
    try:
        lines = run_tool(("ip", *listing)).splitlines()
        if name in [line.split()[0] for line in lines if line.strip()]:
            before(name)
            run_tool(("ip", *deletion))
    except ToolError:
        return False
    return True


def inside(namespace: str, *argv: str) -> tuple[str, ...]:
    """A command that becomes the one given, in the namespace: its pid is that command's."""
    return ("nsenter", f"--net=/run/netns/{namespace}", "--", *argv)


class NetnsHost(SharedDisk):
    """Implements neaptide.clusters.hosts.host.Host with network namespaces."""

    name: NodeName = "netns"
    filters = True

    def __init__(self, local: LocalHost) -> None:
        self.local = local
        self._ports = NodePorts()
        self._subnet: SubnetClaim | None = None
        self._namespaces: dict[int, str] = {}
        self._bridge: str | None = None

    # --- the network -----------------------------------------------------------------------------

    async def prepare(self, nodes: Sequence[int]) -> None:
        await asyncio.to_thread(self._prepare, nodes)

    def _prepare(self, nodes: Sequence[int]) -> None:
        self.local.at_end(self.close_now)
        self._subnet = subnet = claim_subnet()
        bridge = f"neaptide{subnet.label}"
        self.local.ledger.intend_resource(BRIDGE, bridge)
        self._bridge = bridge
        run_tool(("ip", "link", "add", bridge, "type", "bridge"))
        run_tool(("ip", "address", "add", f"{subnet.address(1)}/24", "dev", bridge))
        run_tool(("ip", "link", "set", bridge, "up"))
        for node in nodes:
            self._add_node(node, subnet, bridge)

    def _add_node(self, node: int, subnet: SubnetClaim, bridge: str) -> None:
        namespace = f"neaptide-{subnet.label}-{node}"
        self.local.ledger.intend_resource(NAMESPACE, namespace)
        self._namespaces[node] = namespace
        outer = f"nt{subnet.label}x{node}"
        run_tool(("ip", "netns", "add", namespace))
        link = ("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0")
        run_tool((*link, "netns", namespace))
        run_tool(("ip", "link", "set", outer, "master", bridge, "up"))
        run_tool(("ip", "-n", namespace, "link", "set", "lo", "up"))
        address = f"{subnet.address(_NODE_ADDRESS + node)}/24"
        run_tool(("ip", "-n", namespace, "address", "add", address, "dev", "eth0"))
        run_tool(("ip", "-n", namespace, "link", "set", "eth0", "up"))

    @property
    def _claimed(self) -> SubnetClaim:
        if self._subnet is None:
            raise RuntimeError("the host netns was not prepared")
        return self._subnet

    @property
    def harness_address(self) -> str:
        return self._claimed.address(1)

    def address(self, node: int) -> str:
        return self._claimed.address(_NODE_ADDRESS + node)

    def claim_port(self, node: int) -> NodePort:
        return self._ports.claim(node)

    # --- what is done to a node ------------------------------------------------------------------

    async def start(self, node: int, spec: ProcessSpec) -> LocalNodeProcess:
        argv = inside(self._namespaces[node], *spec.argv)
        return LocalNodeProcess(await self.local.start(replace(spec, argv=argv)))

    async def filter(self, node: int, drops: Collection[Drop]) -> int:
        return await asyncio.to_thread(self._filter, node, drops)

    def _filter(self, node: int, drops: Collection[Drop]) -> int:
        namespace = self._namespaces[node]
        has_table = TABLE in run_tool(inside(namespace, "nft", "list", "tables"))
        listing = inside(namespace, "nft", "--json", "list", "table", "ip", TABLE)
        dropped = dropped_packets(run_tool(listing)) if has_table else 0
        script = render(drops, self.harness_address)
        run_tool(inside(namespace, "nft", "--file", "-"), script)
        return dropped

    async def close(self) -> None:
        """The processes are `local`'s to end, and the network goes after them."""

    def close_now(self) -> None:
        """What cannot be removed stays in the ledger, and its subnet claimed."""
        left = {n: name for n, name in self._namespaces.items() if not remove_namespace(name)}
        self._namespaces = left
        if self._bridge is not None and remove_bridge(self._bridge):
            self._bridge = None
        if left or self._bridge is not None:
            raise HostError("The network of the run was not removed: the next command tries again.")
        if self._subnet is not None:
            self._subnet.close()
            self._subnet = None
