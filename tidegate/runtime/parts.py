"""The parts that a control plane has."""

import time
from collections.abc import Sequence
from pathlib import Path

from tidegate.runtime.part import Part, Surroundings
from tidegate.runtime.rollouts import Rollouts
from tidegate.telemetry.rollouts import RolloutFigures


def made(surroundings: Surroundings) -> Sequence[Part]:
    """Return the parts, in the order in which they begin to listen."""
    figures = RolloutFigures(surroundings.metrics.registry)
    folder = surroundings.config.control.state_dir
    return (Rollouts(surroundings.readjust, time.monotonic, figures, None if folder is None else Path(folder)),)
