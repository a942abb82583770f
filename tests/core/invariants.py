"""What must hold of a broker after every step, whatever happened: the search's invariants."""

from __future__ import annotations

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.simulation.parts import WorldSpec
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import Watch, allowed_to_break

ANSWERS = (
    effects.RespondProduce,
    effects.RespondFetch,
    effects.RespondOffsetForLeaderEpoch,
    effects.RespondListOffsets,
)


def _allowed(spec: WorldSpec, *, loses_pages: bool = False) -> frozenset[str]:
    """Writes of a controller that was deposed are not refused up to 2.0."""
    of_deposed = (
        set() if spec.rules.fences_controller_writes else {"leader-epoch-of-its-controller"}
    )
    return allowed_to_break(spec, loses_pages=loses_pages) | of_deposed


class Looking(Watch):
    """Also remembers what was answered to clients, and to controllers that were refused."""

    def __init__(self, spec: WorldSpec) -> None:
        super().__init__(_allowed(spec))
        self.spec = spec
        self.answers: dict[int, list[Effect]] = {}
        self.refused: list[tuple[int, Error]] = []  # who refused, and why

    def lose_pages(self) -> None:
        self.allowed = _allowed(self.spec, loses_pages=True)

    def handled(
        self, world: World, broker_id: int, event: object, done: tuple[Effect, ...]
    ) -> None:
        super().handled(world, broker_id, event, done)
        for effect in done:
            if isinstance(effect, effects.RespondControl) and effect.error is not Error.NONE:
                self.refused.append((broker_id, effect.error))
            if isinstance(effect, ANSWERS) and effect.request not in world.network.asked:
                self.answers.setdefault(effect.request, []).append(effect)
                assert len(self.answers[effect.request]) == 1, f"{effect} is the second answer"
