"""Policies: one file each, whose name is the configuration key, the metric label and the test's name.

A policy file defines a class ``Picker`` that fulfils ``PickerContract``. Nothing else registers it. A picker may also
define ``shortlist`` (see ``scheduling.shortlist``), and ``explain``, which says what its order rests on:
``explain(request, candidates)`` returns figures by address and name, and changes nothing.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol, cast, runtime_checkable

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng


class PickerContract(Protocol):
    """Orders the candidates for one request. An instance serves one pool and may keep state of its own."""

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return all candidates, the best first, the fallbacks in the order in which to try them.

        ``candidates`` is never empty. Where nothing tells two of them apart, ``rng`` does.
        """
        ...


Figures = Mapping[str, Mapping[str, float]]
"""What an order rests on: by address, each figure by its name."""


@runtime_checkable
class Explaining(Protocol):
    """A picker that can say what its order rests on."""

    def explain(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> Figures:
        """Return the figures of each candidate; nothing is changed by it."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """A picker that weighs scorers."""

    weights: Mapping[str, float]


@cache
def learns(name: str) -> bool:
    """Return whether the policy ``name`` reads what was learned of the endpoints' speed; its class says ``learns``."""
    return bool(getattr(make(name), "learns", False))


def uses_prefix(picker: PickerContract) -> bool:
    """Return whether ``picker`` looks at what is cached of a prompt; a class that does says ``uses_prefix = True``."""
    return bool(getattr(picker, "uses_prefix", False))


def by_turns(picker: PickerContract) -> bool:
    """Return whether ``picker`` heeds neither weights nor speeds; a class that does not says ``by_turns = True``.

    Endpoints that are to get less than their share are then candidates only when it is their turn.
    """
    return bool(getattr(picker, "by_turns", False))


@cache
def names() -> tuple[str, ...]:
    """Return the names of all policies, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def make(name: str, weights: Mapping[str, float] | None = None) -> PickerContract:
    """Return a fresh picker of the policy ``name``, with ``weights`` of its scorers where it has any.

    Raises:
        KeyError: there is no such policy.
        ValueError: it weighs nothing.
    """
    if name not in names():
        raise KeyError(name)
    picker = cast("PickerContract", importlib.import_module(f"{__name__}.{name}").Picker())
    if weights:
        if not isinstance(picker, Weighing):
            raise ValueError(f"the policy {name} has no weights")
        picker.weights = dict(weights)
    return picker
