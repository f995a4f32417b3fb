"""Which pool serves a model."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tidegate.fleet.endpoint import PoolSpec


class Route(NamedTuple):
    """Where a model's requests go.

    Attributes:
        pool: its name.
        adapter: the model is a LoRA adapter over the one that the pool's engines hold.
    """

    pool: str
    adapter: bool


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression that fits, as a whole, the names that ``pattern`` stands for."""
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]").replace("?", "[?]")))


def fits(pattern: str, model: str) -> bool:
    """Return whether ``model`` is one of those that ``pattern`` stands for."""
    return model == pattern if "*" not in pattern else compiled(pattern).fullmatch(model) is not None


class ModelRoutes:
    """Finds a model's pool by the pools' patterns, for models and for adapters.

    A name written out wins over a pattern, a longer pattern over a shorter one, and among equals the pool declared
    first.
    """

    def __init__(self, pools: Iterable[PoolSpec]) -> None:
        """Read the patterns of ``pools``; ``*`` stands for any run of characters, everything else for itself."""
        pools = tuple(pools)
        self._adapters = {pool.name: pool.adapters for pool in pools if pool.adapters}
        self._exact: dict[str, Route] = {}
        patterns: list[tuple[str, Route]] = []
        for pool in pools:
            written = [(model, Route(pool.name, adapter=False)) for model in pool.models]
            written += [(model, Route(pool.name, adapter=True)) for model in pool.adapters]
            for model, route in written:
                if "*" in model:
                    patterns.append((model, route))
                else:
                    self._exact.setdefault(model, route)
        patterns.sort(key=lambda item: -len(item[0]))
        self._patterns: Sequence[tuple[re.Pattern[str], Route]] = [
            (compiled(pattern), route) for pattern, route in patterns
        ]

    def find(self, model: str) -> Route | None:
        """Return the way to what serves ``model``, or ``None``."""
        if (route := self._exact.get(model)) is not None:
            return route
        return next((route for pattern, route in self._patterns if pattern.fullmatch(model)), None)

    def pool_of(self, model: str) -> str | None:
        """Return the name of the pool that serves ``model``, or ``None``."""
        route = self.find(model)
        return None if route is None else route.pool

    def is_adapter(self, model: str, pool: str) -> bool:
        """Return whether ``model`` is a LoRA adapter in ``pool``, whichever pool it would be found in."""
        return any(fits(pattern, model) for pattern in self._adapters.get(pool, ()))
