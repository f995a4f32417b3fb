"""The parts that a control plane has."""

from collections.abc import Sequence

from tidegate.runtime.part import Part, Surroundings


def made(surroundings: Surroundings) -> Sequence[Part]:  # noqa: ARG001
    """Return the parts, in the order in which they begin to listen."""
    return ()
