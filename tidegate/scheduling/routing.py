"""Which pool serves a model."""

import fnmatch
import re
from collections.abc import Iterable, Sequence

from tidegate.fleet.endpoint import PoolSpec


class ModelRoutes:
    """Finds a model's pool by the pools' patterns.

    A name written out wins over a pattern, a longer pattern over a shorter one, and among equals the pool declared
    first.
    """

    def __init__(self, pools: Iterable[PoolSpec]) -> None:
        """Read the patterns of ``pools``; ``*`` stands for any run of characters, everything else for itself."""
        self._exact: dict[str, str] = {}
        patterns: list[tuple[str, str]] = []
        for pool in pools:
            for model in pool.models:
                if "*" in model:
                    patterns.append((model, pool.name))
                else:
                    self._exact.setdefault(model, pool.name)
        patterns.sort(key=lambda item: -len(item[0]))
        self._patterns: Sequence[tuple[re.Pattern[str], str]] = [
            (re.compile(fnmatch.translate(pattern.replace("[", "[[]").replace("?", "[?]"))), pool)
            for pattern, pool in patterns
        ]

    def pool_of(self, model: str) -> str | None:
        """Return the name of the pool that serves ``model``, or ``None``."""
        if (pool := self._exact.get(model)) is not None:
            return pool
        return next((pool for pattern, pool in self._patterns if pattern.fullmatch(model)), None)
