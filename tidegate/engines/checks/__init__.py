"""Ways to find out how an engine is: one file each, whose name is the key in the configuration and the metrics' label.

A file defines ``async def ask(subject, session)``, which returns what it found (see ``tidegate.engines.check``).
``config_checks`` names them too, because the configuration is read without engines.
"""

import importlib
import pkgutil
from functools import cache
from typing import cast

from tidegate.engines.check import Ask


@cache
def names() -> tuple[str, ...]:
    """Return the names of all checks, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@cache
def find(name: str) -> Ask:
    """Return how the check ``name`` asks.

    Raises:
        KeyError: there is no such check.
    """
    if name not in names():
        raise KeyError(name)
    return cast("Ask", importlib.import_module(f"{__name__}.{name}").ask)
