"""Reasons to leave an endpoint out: one file each, whose name is the configuration key.

A filter's file defines ``keep(request, candidates)``, which returns those that may serve the request. A filter that
would leave nobody is passed over, because a doubtful endpoint beats a sure refusal; not so a file with ``HARD = True``,
which says what cannot be. A filter that only reads what is declared may define ``idle(pool)``: whether it keeps every
endpoint of a pool of that declaration; it is not asked there then. Nor is one with
``HEEDS_HEALTH = True`` where everybody is healthy.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple, Protocol, cast

from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

DEFAULT = ("reachable", "breaker", "adapter", "vram", "fits")
"""The filters of a pool that names none, besides the hard ones."""


class Keep(Protocol):
    """The function of a filter. Nothing is changed by it, and ``candidates`` is never empty."""

    def __call__(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
        """Return the candidates that may serve ``request``, in their order."""
        ...


ROOM = "room"
"""The name of the filter that asks for a place (``scheduling.room``): what finds none waits."""


class Filter(NamedTuple):
    """One filter."""

    name: str
    keep: Keep
    hard: bool
    idle: Callable[[PoolSpec], bool] | None = None
    heeds_health: bool = False


class Step(NamedTuple):
    """What one filter did to the candidates of a request.

    Attributes:
        filter: its name.
        removed: the addresses that it left out, or would have.
        passed_over: it would have left nobody, and so left out nobody.
    """

    filter: str
    removed: tuple[str, ...]
    passed_over: bool


class Screened(NamedTuple):
    """Who is left.

    Attributes:
        kept: the candidates that no filter left out; empty when a hard one left nobody.
        doubtful: some filter left nobody.
    """

    kept: Sequence[EndpointView]
    doubtful: bool


@cache
def names() -> tuple[str, ...]:
    """Return the names of all filters, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@cache
def find(name: str) -> Filter:
    """Return the filter ``name``.

    Raises:
        KeyError: there is no such filter.
    """
    if name not in names():
        raise KeyError(name)
    module = importlib.import_module(f"{__name__}.{name}")
    return Filter(
        name,
        cast("Keep", module.keep),
        getattr(module, "HARD", False),
        getattr(module, "idle", None),
        getattr(module, "HEEDS_HEALTH", False),
    )


@cache
def chain(chosen: tuple[str, ...]) -> tuple[Filter, ...]:
    """Return the hard filters, those on health last, and then those ``chosen``, in that order.

    Raises:
        KeyError: there is no filter of such a name.
    """
    hard = sorted((found for found in map(find, names()) if found.hard), key=lambda found: found.heeds_health)
    return (*hard, *(found for found in map(find, chosen) if not found.hard))


def needed(pool: PoolSpec, chosen: tuple[str, ...], *, well: bool = False) -> tuple[Filter, ...]:
    """Return ``chain(chosen)`` without those that keep every endpoint of ``pool``, all of which are ``well``, or not.

    Raises:
        KeyError: there is no filter of such a name.
    """
    return tuple(
        found
        for found in chain(chosen)
        if not (found.idle is not None and found.idle(pool)) and not (well and found.heeds_health)
    )


def screen(
    request: InferenceRequest,
    candidates: Sequence[EndpointView],
    filters: Iterable[Filter],
    steps: list[Step] | None = None,
) -> Screened:
    """Let ``filters`` leave out candidates, one after the other; what each did is added to ``steps``."""
    doubtful = False
    for name, keep, hard, *_ in filters:
        kept = keep(request, candidates)
        passed_over = not kept and not hard
        if steps is not None:
            left = {endpoint.address for endpoint in kept}
            removed = tuple(endpoint.address for endpoint in candidates if endpoint.address not in left)
            steps.append(Step(name, removed, passed_over))
        if passed_over:
            doubtful = True
            continue
        candidates = kept
        if not candidates:
            return Screened((), doubtful=True)
    return Screened(candidates, doubtful)
