"""The weights that Envoy is told: as declared, or as learned where the policy learns how fast endpoints are."""

from collections.abc import Callable, Container, Iterable

from tidegate.fleet.capacity import capacity, weights
from tidegate.fleet.view import PoolView


class LearnedWeights:
    """Remembers what was told of each pool, so that a speed that wavers changes nothing."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, int]] = {}

    def applied(
        self, pools: Iterable[PoolView], learning: Container[str], mix: Callable[[str], tuple[float, float]]
    ) -> tuple[PoolView, ...]:
        """Return ``pools`` with the weights to tell.

        Args:
            pools: as they are.
            learning: the names of those whose weights are learned.
            mix: returns a pool's mean tokens of prompt and of output.
        """
        return tuple(self._weighed(pool, mix) if pool.name in learning else pool for pool in pools)

    def _weighed(self, pool: PoolView, mix: Callable[[str], tuple[float, float]]) -> PoolView:
        prompt, output = mix(pool.name)
        capacities = [(one.address, capacity(one.pace, prompt, output)) for one in pool.endpoints]
        told = self._told[pool.name] = weights(capacities, self._told.get(pool.name, {}))
        return pool._replace(endpoints=tuple(one._replace(weight=told[one.address]) for one in pool.endpoints))
