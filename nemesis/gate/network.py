"""What the network lets through at this moment: cuts, slow links, dead brokers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neaptide.nemesis.gate.model import Cut, Endpoint, Purpose, Slow


@dataclass(frozen=True, slots=True)
class Network:
    """The state of all links, replaced as a whole by each change."""

    cuts: tuple[Cut, ...] = ()
    slows: tuple[Slow, ...] = ()
    severed: tuple[int, ...] = ()  # brokers that no byte reaches or leaves

    def cut(self, cut: Cut) -> Network:
        return replace(self, cuts=(*(each for each in self.cuts if each != cut), cut))

    def heal(self, cut: Cut | None) -> Network:
        """Undo one cut, exactly as it was made; None: all of them."""
        left = () if cut is None else tuple(each for each in self.cuts if each != cut)
        return replace(self, cuts=left)

    def slow(self, where: Cut, delay_ms: int) -> Network:
        """Slow a direction down; 0 makes it as fast as it was."""
        others = tuple(each for each in self.slows if each.where != where)
        return replace(self, slows=(*others, Slow(where, delay_ms)) if delay_ms else others)

    def sever(self, broker: int) -> Network:
        return replace(self, severed=(*self.revive(broker).severed, broker))

    def revive(self, broker: int) -> Network:
        return replace(self, severed=tuple(each for each in self.severed if each != broker))

    def is_cut(self, source: Endpoint | None, destination: Endpoint | None, why: Purpose) -> bool:
        return any(cut.covers(source, destination, why) for cut in self.cuts)

    def is_severed(self, *ends: Endpoint | None) -> bool:
        return any(end in self.severed for end in ends if end is not None)

    def delay_ms(self, source: Endpoint | None, destination: Endpoint | None, why: Purpose) -> int:
        return sum(
            slow.delay_ms for slow in self.slows if slow.where.covers(source, destination, why)
        )
