"""Does what the steps of a schedule say, to the cluster and its links; each is noted as history.

A death is always the same: the links of the broker are severed first, so that the moment is exact;
then the process is killed; then the schedule's word decides what becomes of the bytes in flight;
then the coordination service forgets the session, which otherwise takes its time-out.

A cut is made by the gate, so that its moment is exact and nothing that waits in the gate passes,
and where nodes have packet filters by those as well; how many packets these dropped is noted when
they let go. Both end together, and the gate resets the connections that had been cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from neaptide.clusters.cluster import DamageKind, DiskFile
from neaptide.clusters.hosts.io_faults import IoFault
from neaptide.clusters.hosts.toxiproxy import Toxic, ToxicLinks
from neaptide.harness.live.stage import Stage
from neaptide.nemesis.filters import drops
from neaptide.nemesis.gate.model import COORDINATION, Cut, Endpoint, InFlight, Purpose, Rule
from neaptide.nemesis.gate.network import Network


class Faults:
    """Brokers are ids here; the history has their names."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        # What was asked for, and what was cut for it.
        self._cuts: list[tuple[tuple[Endpoint | None, Endpoint | None], Cut]] = []
        self._slowed: list[tuple[Endpoint | None, Endpoint | None, Purpose | None]] = []
        self._filtered = Network()  # what the nodes' packet filters drop
        # By name: the links, and how many connections those had had before.
        self._toxics: dict[str, tuple[tuple[str, ...], int]] = {}
        self._wrong_clocks: set[int] = set()
        self._injected: set[int] = set()

    def _note(self, verb: str, invoked_ns: int, **fields: Any) -> None:
        self._stage.note_nemesis({verb: fields}, invoked_ns)

    def _name(self, node: int) -> str:
        """Of a broker, or of a controller that is none."""
        return self._stage.names.get(node, f"controller-{node}")

    # --- deaths and returns ----------------------------------------------------------------------

    async def kill(self, in_flight: InFlight, *brokers: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        in_flight = self._fate(in_flight)
        await self._die(brokers, in_flight)
        for broker in brokers:
            self._note("kill", begun_ns, broker=self._name(broker), in_flight=in_flight)

    async def power_off(self, keep: Mapping[int, int], *brokers: int) -> None:
        """`keep`: partition → offset before which all happened to reach the disk of each."""
        begun_ns = self._stage.recorder.now_ns()
        await self._die(brokers, "discarded")
        for broker in brokers:
            lost = await self._stage.cluster.lose_page_cache(broker, keep)
            fields = {str(partition): count for partition, count in lost.items()}
            self._note("power_off", begun_ns, broker=self._name(broker), lost=fields)

    async def _die(self, brokers: Sequence[int], in_flight: InFlight) -> None:
        """None of them can do anything any more when the first is killed."""
        stage = self._stage
        for broker in brokers:
            await stage.gate.sever(broker)
            stage.sever(broker)  # all that the gate reported before has been received
        for broker in brokers:
            await stage.cluster.kill(broker)
            stage.paused.discard(broker)
        for broker in brokers:
            await stage.gate.bury(broker, in_flight)
        for broker in brokers:
            await stage.cluster.forget_session(broker)

    async def stop(self, broker: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        self._stage.sever(broker)
        await self._stage.cluster.stop(broker)
        await self._stage.gate.sever(broker)
        await self._stage.gate.bury(broker, self._fate("delivered"))
        self._note("stop", begun_ns, broker=self._name(broker))

    async def restart(self, broker: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.gate.revive(broker)
        await self._stage.cluster.start(broker, self._stage.listeners(broker))
        self._stage.severed.discard(broker)  # until then it is down because we said so
        self._note("restart", begun_ns, broker=self._name(broker))

    async def pause(self, broker: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        self._stage.paused.add(broker)  # so that it is not taken for somebody else's doing
        try:
            await self._stage.cluster.pause(broker)
        except BaseException:
            self._stage.paused.discard(broker)
            raise
        self._note("pause", begun_ns, broker=self._name(broker))

    async def resume(self, broker: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.cluster.resume(broker)
        self._stage.paused.discard(broker)
        self._note("resume", begun_ns, broker=self._name(broker))

    # --- the quorum of KRaft ---------------------------------------------------------------------

    async def remove_voter(self, node: int) -> None:
        """Raises RefusedError."""
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.cluster.remove_voter(node)
        self._note("remove_voter", begun_ns, broker=self._name(node))

    async def add_voter(self, node: int) -> None:
        """Raises RefusedError."""
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.cluster.add_voter(node, self._stage.listeners(node))
        self._note("add_voter", begun_ns, broker=self._name(node))

    # --- links -----------------------------------------------------------------------------------

    def _end_name(self, end: Endpoint | None) -> str | None:
        return self._name(end) if isinstance(end, int) else end

    def _links(
        self, source: Endpoint | None, destination: Endpoint | None, purpose: Purpose | None
    ) -> tuple[tuple[tuple[Endpoint | None, Endpoint | None], ...], Purpose | None]:
        """Coordination is one end with ZooKeeper, and as many as there are controllers in KRaft."""
        if destination == COORDINATION:
            ends = self._stage.coordination_of(source)
            return tuple((source, node) for node in ends), COORDINATION
        if source == COORDINATION:
            ends = self._stage.coordination_of(destination)
            return tuple((node, destination) for node in ends), COORDINATION
        return ((source, destination),), purpose

    async def cut(
        self,
        source: Endpoint | None,
        destination: Endpoint | None,
        purpose: Purpose | None,
        *,
        both: bool,
    ) -> None:
        begun_ns = self._stage.recorder.now_ns()
        links, why = self._links(source, destination, purpose)
        cuts = [Cut(one, other, why) for one, other in links]
        if both:
            cuts += [Cut(other, one, why) for one, other in links]
        for cut in cuts:
            await self._stage.gate.cut(cut.source, cut.destination, cut.purpose)
            self._cuts.append(((source, destination), cut))
        proof = await self._filter()
        fields = {"from": self._end_name(source), "to": self._end_name(destination)}
        self._note("cut", begun_ns, **fields, purpose=purpose, both=both, **proof)

    async def _filter(self) -> dict[str, dict[str, int]]:
        """Has the nodes' packet filters drop what is cut; how much those before had dropped."""
        stage, nodes = self._stage, sorted(self._stage.nodes)
        if not stage.machines.filters:
            return {}
        before = drops(self._filtered, stage.links, stage.gate.ports, nodes)
        self._filtered = Network(tuple(cut for _, cut in self._cuts))
        after = drops(self._filtered, stage.links, stage.gate.ports, nodes)
        changed = [node for node in nodes if before[node] != after[node]]
        counts = {node: await stage.machines.filter(node, after[node]) for node in changed}
        return {
            "filter_rules": {self._name(node): len(after[node]) for node in changed},
            "packets_dropped": {self._name(n): counts[n] for n in changed if before[n]},
        }

    async def heal(
        self,
        source: Endpoint | None = None,
        destination: Endpoint | None = None,
    ) -> None:
        """Whatever was cut between these two, either way; without ends every cut and delay.

        Without ends toxics end, too. Connections are reset: what waited in them may be stale.
        """
        begun_ns = self._stage.recorder.now_ns()
        everything = source is None and destination is None
        healed = [e for e in self._cuts if everything or set(e[0]) == {source, destination}]
        for entry in healed:
            self._cuts.remove(entry)
        proof = await self._filter()
        if everything:
            await self._stage.gate.heal_all(reset=True)
            for link in self._slowed:
                await self._stage.gate.slow(*link, delay_ms=0)
            self._slowed.clear()
            for name in tuple(self._toxics):
                await self.end_toxic(name)
        else:
            for _, cut in healed:
                await self._stage.gate.heal(cut.source, cut.destination, cut.purpose, reset=True)
        fields = {"from": self._end_name(source), "to": self._end_name(destination)}
        self._note("heal", begun_ns, **fields, **proof)

    async def slow(
        self,
        source: Endpoint | None,
        destination: Endpoint | None,
        purpose: Purpose | None,
        delay_ms: int,
    ) -> None:
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.gate.slow(source, destination, purpose, delay_ms=delay_ms)
        self._slowed.append((source, destination, purpose))
        fields = {"from": self._end_name(source), "to": self._end_name(destination)}
        self._note("slow", begun_ns, **fields, purpose=purpose, delay_ms=delay_ms)

    # --- toxics ----------------------------------------------------------------------------------

    async def add_toxic(self, name: str, broker: int, purpose: Purpose, toxic: Toxic) -> None:
        """Connections of the link are closed, and made anew."""
        begun_ns = self._stage.recorder.now_ns()
        links = self._stage.links_of(broker, purpose)
        self._toxics[name] = (links, self._connections(links))
        for link in links:
            await self._links_with_toxics.begin(link, _on(name, link), toxic)
        where = {"broker": self._name(broker), "purpose": purpose, "stream": toxic.stream}
        said = {"name": name, **where, "type": toxic.kind, **toxic.attributes}
        self._note("toxic", begun_ns, **said)

    async def end_toxic(self, name: str) -> int:
        """How many connections of the link had it. They are closed, and made anew."""
        begun_ns = self._stage.recorder.now_ns()
        links, before = self._toxics.pop(name)
        met = self._connections(links) - before
        for link in links:
            await self._links_with_toxics.end(_on(name, link))
        self._note("end_toxic", begun_ns, name=name, connections=met)
        return met

    def idle_toxics(self) -> list[str]:
        """Those that are there now and that no connection has had."""
        toxics = self._toxics.items()
        return [name for name, (links, n) in toxics if self._connections(links) == n]

    def _connections(self, links: tuple[str, ...]) -> int:
        return sum(self._stage.connections[link] for link in links)

    @property
    def _links_with_toxics(self) -> ToxicLinks:
        assert self._stage.toxics is not None, "whoever has toxics has asked the stage for them"
        return self._stage.toxics

    def _fate(self, in_flight: InFlight) -> InFlight:
        """What a link with a toxic has not passed on yet nobody can have delivered at once."""
        return "discarded" if self._toxics else in_flight

    # --- clocks and disks ------------------------------------------------------------------------

    async def set_clock(self, broker: int, ahead_ms: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.cluster.set_clock(broker, ahead_ms)
        (self._wrong_clocks.add if ahead_ms else self._wrong_clocks.discard)(broker)
        self._note("clock", begun_ns, broker=self._name(broker), ahead_ms=ahead_ms)

    async def damage(
        self, broker: int, kind: DamageKind, file: DiskFile, partition: int, seed: int
    ) -> None:
        """Of a broker that is down."""
        begun_ns = self._stage.recorder.now_ns()
        done = await self._stage.cluster.damage(broker, kind, file, partition, seed)
        self._note("damage", begun_ns, broker=self._name(broker), kind=kind, what=done)

    async def keep_snapshot(self, broker: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.cluster.keep_snapshot(broker)
        self._note("keep_snapshot", begun_ns, broker=self._name(broker))

    async def put_back(self, broker: int) -> None:
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.cluster.put_back(broker)
        self._note("put_back", begun_ns, broker=self._name(broker))

    async def inject(self, broker: int, fault: IoFault, file: DiskFile, partition: int) -> None:
        """A broker may end by itself of it: from here on that is no incident."""
        begun_ns = self._stage.recorder.now_ns()
        if fault.error is not None:
            self._stage.sever(broker)
        self._injected.add(broker)
        await self._stage.cluster.inject(broker, fault, file, partition)
        self._note("inject", begun_ns, broker=self._name(broker), file=file, **asdict(fault))

    async def end_injections(self, broker: int, *, watched: bool = True) -> int:
        """How many calls were met. A broker that has lived on is watched again, unless the caller
        sees to that."""
        begun_ns = self._stage.recorder.now_ns()
        met = await self._stage.cluster.end_injections(broker)
        self._injected.discard(broker)
        if watched and self._stage.cluster.is_up(broker):
            self._stage.severed.discard(broker)
        self._note("end_injections", begun_ns, broker=self._name(broker), calls_met=met)
        return met

    async def heal_machines(self) -> None:
        """Clocks are right, and disks are well."""
        for broker in sorted(self._wrong_clocks):
            await self.set_clock(broker, 0)
        for broker in sorted(self._injected):
            await self.end_injections(broker)

    # --- messages --------------------------------------------------------------------------------

    async def install(self, rule: Rule) -> None:
        begun_ns = self._stage.recorder.now_ns()
        await self._stage.gate.install(rule)
        self._note(
            rule.action,
            begun_ns,
            rule=rule.id,
            **{rule.message: rule.api},
            **{
                "from": self._end_name(rule.source),
                "to": self._end_name(rule.destination),
                "where": rule.where,
            },
        )

    async def release(self, rule: str) -> None:
        begun_ns = self._stage.recorder.now_ns()
        self._stage.holds.let_go(rule)
        count = await self._stage.gate.release(rule)
        self._note("release", begun_ns, rule=rule, messages=count)

    async def discard(self, rule: str) -> None:
        begun_ns = self._stage.recorder.now_ns()
        self._stage.holds.let_go(rule)
        count = await self._stage.gate.discard(rule)
        self._note("discard", begun_ns, rule=rule, messages=count)


def _on(name: str, link: str) -> str:
    """A toxic that is on several links is one on each."""
    return f"{name} on {link}"
