"""The engines that can be read: one file each, whose name is the value of ``engine`` in the configuration.

A file defines ``DIALECT``. Nothing else registers it.
"""

import importlib
import pkgutil
from typing import cast

from tidegate.engines.dialect import Dialect


def names() -> tuple[str, ...]:
    """Return the names of all dialects, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def dialect(name: str) -> Dialect:
    """Return the dialect called ``name``.

    Raises:
        KeyError: there is none.
    """
    if name not in names():
        raise KeyError(name)
    return cast("Dialect", importlib.import_module(f"{__name__}.{name}").DIALECT)
