"""What directories say of requests, put into the configuration that is decided by: objectives, other names of models.

A model that is rewritten goes to the pool whose rewrite names it, unless the patterns of another pool claim it. What
the file says itself comes first: its routes, and its objectives.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.config import Config, Pool
from tidegate.config_objectives import RequestObjective
from tidegate.config_routes import MAX_ROUTES, Route
from tidegate.config_splits import Side
from tidegate.discovery import static
from tidegate.discovery.contract import Rewrite, Steering
from tidegate.runtime import kept
from tidegate.runtime.discovered import Discovered
from tidegate.runtime.part import Part
from tidegate.scheduling.routing import ModelRoutes
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.discovery")

NAMED: Final = "rewrite/"
"""What the names of the routes begin with that rewrites become."""


FILE: Final = "steering.json"


class Kept(msgspec.Struct, frozen=True):
    """What was said last of requests to the InferencePool ``of``."""

    of: str
    said: Steering


class Steered(Part):
    """Has what directories say of requests obeyed."""

    def __init__(self, discovered: Discovered, readjust: Callable[[], None], folder: str | None = None) -> None:
        """Obey what ``discovered`` finds; ``readjust`` has ``adjusted`` asked again.

        What was said last is kept in ``folder``, if there is one, and goes on after a restart until it is said anew.
        """
        self._discovered = discovered
        self._readjust = readjust
        self._file = None if folder is None else Path(folder) / FILE
        self._kept = self._read()
        self._config: Config | None = None
        self._obeyed = dict[str, Steering]()
        discovered.steered = self._told

    def adjusted(self, config: Config) -> Config:
        """Return ``config`` with the routes that rewrites come to, and with all objectives."""
        self._config = config
        said = self._obeyed = self._said(config)
        if not said:
            return config
        routes = (*config.routes, *routes_of(config, {name: one.rewrites for name, one in said.items()}))
        objectives = tuple(objectives_of(config, said.values()))
        return config.model_copy(
            update={"routes": routes[: max(MAX_ROUTES, len(config.routes))], "objectives": objectives}
        )

    def _said(self, config: Config) -> dict[str, Steering]:
        before = {
            pool.name: self._kept[pool.name].said
            for pool in config.pools
            if pool.name in self._kept and self._kept[pool.name].of == _followed(pool)
        }
        return {name: said for name, said in {**before, **self._discovered.steering()}.items() if said != Steering()}

    def _told(self) -> None:
        if self._config is None or self._said(self._config) != self._obeyed:
            self._readjust()
        if self._file is None or self._config is None:
            return
        said = self._discovered.steering()
        pools = [pool for pool in self._config.pools if pool.name in said]
        self._kept |= {pool.name: Kept(_followed(pool), said[pool.name]) for pool in pools}
        try:
            kept.write(self._file, msgspec.to_builtins(self._kept))
        except OSError as error:
            event(logger, "steering not kept", level=logging.ERROR, file=str(self._file), reason=str(error))

    def _read(self) -> dict[str, Kept]:
        if self._file is None:
            return {}
        try:
            content = kept.read(self._file)
            return {} if content is None else msgspec.convert(content, dict[str, Kept])
        except (OSError, ValueError, msgspec.ValidationError) as error:
            event(logger, "kept steering not read", level=logging.ERROR, file=str(self._file), reason=str(error))
            return {}


def _followed(pool: Pool) -> str:
    """Return which InferencePool is followed for ``pool``; empty for none."""
    source = pool.discovery.kubernetes if pool.discovery else None
    return f"{source.namespace}/{source.inference_pool}" if source and source.inference_pool else ""


def objectives_of(config: Config, said: Iterable[Steering]) -> Iterator[RequestObjective]:
    """Yield the objectives of ``config``, then those ``said``; of one that is said twice the lower priority counts."""
    yield from config.objectives
    own = {objective.name for objective in config.objectives}
    known: dict[str, int] = {}
    for one in said:
        for name, priority in one.objectives:
            known[name] = min(priority, known.get(name, priority))
    yield from (RequestObjective(name=name, priority=priority) for name, priority in known.items() if name not in own)


def routes_of(config: Config, rewrites: Mapping[str, tuple[Rewrite, ...]]) -> Iterator[Route]:
    """Yield what ``rewrites``, by pool, come to: names that are written out, then whatever else goes to these pools."""
    serving = ModelRoutes(static.declared(config).pools)
    taken: set[str] = set()
    for pool, rules in rewrites.items():
        for rule in rules:
            for model in rule.models:
                if model not in taken and serving.pool_of(model) in {pool, None}:
                    taken.add(model)
                    yield _route(pool, rule, model)
    whole = {pool: rule for pool, rules in rewrites.items() for rule in reversed(rules) if not rule.models}
    if whole:
        yield from _by_pattern(config, whole)


def _by_pattern(config: Config, whole: Mapping[str, Rewrite]) -> Iterator[Route]:
    """Yield a route for each pattern of a model, in the order in which pools are looked for by them."""
    patterns = {model: pool.name for pool in reversed(config.pools) for model in (*pool.models, *pool.adapters)}
    ordered = sorted(patterns, key=lambda model: ("*" in model, -len(model)))
    last = max((at for at, model in enumerate(ordered) if patterns[model] in whole), default=-1)
    for model in ordered[: last + 1]:
        pool = patterns[model]
        # What another pool is to have is led there, before a wider pattern takes it.
        yield _route(pool, whole[pool], model) if pool in whole else Route(model=model, pool=pool)


def _route(pool: str, rule: Rewrite, model: str) -> Route:
    name = f"{NAMED}{rule.name}"[:64]
    if len(rule.targets) == 1:
        return Route(name=name, model=model, pool=pool, rewrite_model=rule.targets[0][0])
    sides = tuple(Side(pool=pool, weight=weight, rewrite_model=target) for target, weight in rule.targets)
    return Route(name=name, model=model, split=sides)
