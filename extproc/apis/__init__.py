"""The APIs that are served: one file each, whose name is the metric label and the test's name.

An API's file defines ``METHOD``, ``PATH`` and ``parse``. Nothing else registers it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import NamedTuple

from extproc.body import ParsedBody
from extproc.errors import ApiError


class Api(NamedTuple):
    """One API.

    Attributes:
        name: the name of its file.
        method: the HTTP method, in capitals.
        path: the path, without a query.
        parse: understands a body, or raises ``ApiError``; raises nothing else, whatever the bytes.
    """

    name: str
    method: str
    path: str
    parse: Callable[[bytes], ParsedBody]


def _load() -> Mapping[str, Api]:
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        found[module.PATH] = Api(entry.name, module.METHOD, module.PATH, module.parse)
    return found


APIS: Mapping[str, Api] = _load()
"""The APIs by path."""


def match(headers: Mapping[str, str]) -> Api:
    """Return the API that a request with these headers is for.

    Raises:
        ApiError: 404, there is no such path; 405, not by this method.
    """
    api = APIS.get(headers.get(":path", "").partition("?")[0])
    if api is None:
        served = ", ".join(f"{api.method} {api.path}" for api in APIS.values())
        raise ApiError(404, f"There is no such path. Served are {served}.", reason="unknown_path", code="unknown_url")
    if headers.get(":method") != api.method:
        raise ApiError(
            405,
            f"{api.path} is served by {api.method} alone.",
            reason="method_not_allowed",
            code="method_not_allowed",
            headers={"allow": api.method},
        )
    return api
