"""The APIs that are served: one file each, whose name is the metric label.

An API's file defines ``METHOD``, ``PATHS`` and one of ``parse``, for JSON that goes to an engine, ``parse_form``, for
a form that does, or ``answer``, for what is answered here. Nothing else registers it. A path that ends in ``/`` stands
for everything below it. Where it says nothing, answers tell their token usage as chat completions do; ``USAGE`` says
otherwise.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from extproc import passthrough
from extproc.body import ParsedBody
from extproc.desk import Catalogue
from extproc.errors import ApiError
from extproc.usage import Usage
from tidegate.scheduling.routes import Routes

Parse = Callable[[bytes], ParsedBody]
ParseForm = Callable[[bytes, str], ParsedBody]
Answer = Callable[[Mapping[str, str], Catalogue], bytes]

ANY_METHOD = "*"


class Api(NamedTuple):
    """One API at one of its paths.

    Attributes:
        name: the name of its file.
        method: the HTTP method, in capitals, or ``ANY_METHOD``.
        path: the path, without a query.
        parse: understands a body, or raises ``ApiError``; raises nothing else, whatever the bytes. ``None`` for an API
            that is answered here; of a form what ``match`` makes of ``parse_form``.
        parse_form: the same of a body whose ``content-type`` has to be known.
        answer: returns the JSON answer to a request with these headers, given what is served, or raises ``ApiError``.
        usage: how its answers tell what they cost.
    """

    name: str
    method: str
    path: str
    parse: Parse | None = None
    parse_form: ParseForm | None = None
    answer: Answer | None = None
    usage: Usage = Usage.CHAT_COMPLETIONS


def _load() -> Mapping[str, Api]:
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        for path in module.PATHS:
            found[path] = Api(
                entry.name,
                module.METHOD,
                path,
                getattr(module, "parse", None),
                getattr(module, "parse_form", None),
                getattr(module, "answer", None),
                getattr(module, "USAGE", Usage.CHAT_COMPLETIONS),
            )
    return found


APIS: Mapping[str, Api] = _load()
"""The APIs by path."""

BY_NAME: Mapping[str, Api] = {api.name: api for api in reversed([*APIS.values()])}
"""The APIs by name, each at its own path, which is the first that it declares."""


ESCAPED_SLASH = re.compile("%(2f|5c)", re.IGNORECASE)
"""What some servers take for a slash. Envoy leaves it as it is, for the names of models have slashes."""

PASSED_ON = Api(passthrough.NAME, ANY_METHOD, "", passthrough.parse, usage=passthrough.USAGE)
"""What stands for all paths that are not known, where they are passed on."""


def match(headers: Mapping[str, str], *, pass_on: bool = False, routes: Routes | None = None) -> Api:
    """Return the API that a request with these headers is for; ``PASSED_ON`` for an unknown path, if that is wanted.

    ``routes`` may say which API is spoken on a path that is no API's own.

    Raises:
        ApiError: 404, there is no such path; 405, not by this method; 400, an engine might take it for another path.
    """
    path = path_of(headers)
    api = _at(path)
    if api is None and routes is not None and (name := routes.api_of(path, headers)):
        api = BY_NAME[name]._replace(path=path)
    if (api is None or api.answer is None) and "%" in path and ESCAPED_SLASH.search(path):
        raise ApiError(400, "The path holds an escaped slash.", reason="escaped_slash", code="bad_request")
    if api is None and pass_on:
        return PASSED_ON
    if api is None:
        served = ", ".join(
            f"{api.method} {api.path}" for api in APIS.values() if api.path.startswith("/v1/") and api.path[-1] != "/"
        )
        raise ApiError(404, f"There is no such path. Served are {served}.", reason="unknown_path", code="unknown_url")
    if api.method not in {headers.get(":method"), ANY_METHOD}:
        raise ApiError(
            405,
            f"{api.path} is served by {api.method} alone.",
            reason="method_not_allowed",
            code="method_not_allowed",
            headers={"allow": api.method},
        )
    return api if api.parse_form is None else _with_boundary(api, api.parse_form, headers.get("content-type", ""))


def _with_boundary(api: Api, parse_form: ParseForm, content_type: str) -> Api:
    return api._replace(parse=lambda body: parse_form(body, content_type))


def engine_path(api: Api) -> str:
    """Return the path by which an engine knows ``api`` where the client's is none of its own; empty where it is one."""
    return BY_NAME[api.name].path if api.path and api.path not in APIS else ""


def path_of(headers: Mapping[str, str]) -> str:
    """Return the path of a request, without its query."""
    return headers.get(":path", "").partition("?")[0]


def _at(path: str) -> Api | None:
    if path.endswith("/"):
        return None
    if (api := APIS.get(path)) is not None:
        return api
    return next((api for api in APIS.values() if api.path.endswith("/") and path.startswith(api.path)), None)
