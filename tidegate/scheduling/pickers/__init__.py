"""Policies: one file each, whose name is the configuration key, the metric label and the test's name.

A policy file defines a class ``Picker`` that fulfils ``PickerContract``. Nothing else registers it.
"""

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Protocol, cast

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


def names() -> tuple[str, ...]:
    """Return the names of all policies, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def make(name: str) -> PickerContract:
    """Return a fresh picker of the policy ``name``.

    Raises:
        KeyError: there is no such policy.
    """
    if name not in names():
        raise KeyError(name)
    return cast("PickerContract", importlib.import_module(f"{__name__}.{name}").Picker())
