"""The admin pages: metrics, health, status and questions, over plain HTTP, and the few things that can be done by hand.

``/healthz`` says that the process lives, ``/readyz`` that it can do its work: restart on the one, route on the other.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tidegate.telemetry.status import JsonObject

PAGES = {
    "/metrics": "what is counted, for Prometheus",
    "/healthz": "200 while the process lives",
    "/readyz": "200 when it can serve; 503 with the reasons when it cannot",
    "/status": "the fleet, as JSON",
    "/tenants": "the tenants and what they may still use, as JSON",
}

EXPLAIN = "/explain"
"""Where ``tidegate explain --live`` asks, by POST: a prompt has no place in a URL."""


class UnanswerableError(Exception):
    """A question has no answer; ``status`` is the HTTP status that says so."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


Explain = Callable[[bytes], Awaitable[bytes]]
"""Returns the decision record of a request that is only asked about, or raises ``UnanswerableError``."""


class Page(NamedTuple):
    """One page more: what it shows, in a few words, and what returns it for the query's parameters."""

    about: str
    content: Callable[[Mapping[str, str]], JsonObject]


class Action(NamedTuple):
    """One thing that can be done: what, in a few words, and what does it and returns what came of it."""

    about: str
    perform: Callable[[Mapping[str, str]], JsonObject]


def no_tenants() -> JsonObject:
    """Return the page of the tenants where there are none."""
    return {"tenants": [], "requests_held": 0}


def make_app(
    metrics_text: Callable[[], bytes],
    unready: Callable[[], Sequence[str]],
    status: Callable[[], JsonObject],
    tenants: Callable[[], JsonObject] = no_tenants,
    explain: Explain | None = None,
    more: Mapping[str, Page] = MappingProxyType({}),
    actions: Mapping[str, Action] = MappingProxyType({}),
) -> web.Application:
    """Return the application.

    Args:
        metrics_text: the page for Prometheus, in text format 0.0.4.
        unready: why the control plane cannot serve; empty when it can. One line each.
        status: the fleet (``status.describe``).
        tenants: the tenants and what they may still use.
        explain: answers what is asked at ``EXPLAIN``; without it there is no such page.
        more: further pages by path; one that cannot answer raises ``UnanswerableError``.
        actions: what can be done, by path, likewise; asked for by POST of a JSON object of texts.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics_text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = unready()
        if reasons:
            return web.Response(status=503, text="".join(f"{reason}\n" for reason in reasons))
        return web.Response(text="ok\n")

    async def state(_: web.Request) -> web.Response:
        return _json(status())

    async def budgets(_: web.Request) -> web.Response:
        return _json(tenants())

    app = web.Application()
    pages: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
        "/": _index(more, explains=explain is not None),
        "/metrics": metrics,
        "/healthz": healthz,
        "/readyz": readyz,
        "/status": state,
        "/tenants": budgets,
    }
    pages |= {path: _showing(page) for path, page in more.items()}
    for path, page in pages.items():
        app.router.add_get(path, page, allow_head=False)
    for path, action in actions.items():
        app.router.add_post(path, _doing(action))
    if explain is not None:
        app.router.add_post(EXPLAIN, _answered_by(explain))
    app.on_response_prepare.append(_set_headers)
    return app


def _index(more: Mapping[str, Page], *, explains: bool) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    listed = {**PAGES, **{path: page.about for path, page in more.items()}}
    if explains:
        listed[EXPLAIN] = "how a request would be decided now (POST; tidegate explain --live)"
    text = "Tidegate\n\n" + "".join(f"{path:<10} {about}\n" for path, about in listed.items())

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=text)

    return index


def _json(page: JsonObject) -> web.Response:
    return web.Response(text=json.dumps(page, allow_nan=False), content_type="application/json")


def _showing(page: Page) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def shown(request: web.Request) -> web.Response:
        try:
            return _json(page.content(request.query))
        except UnanswerableError as error:
            return web.Response(status=error.status, text=f"{error}\n")

    return shown


def _doing(action: Action) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def done(request: web.Request) -> web.Response:
        # A form on another site's page can be sent to us by any browser; a body that says it is JSON cannot.
        if request.content_type != "application/json":
            return web.Response(status=415, text="expected application/json\n")
        try:
            asked = msgspec.json.decode(await request.read(), type=dict[str, str])
        except msgspec.DecodeError:
            return web.Response(status=400, text="expected a JSON object of texts\n")
        try:
            return _json(action.perform(asked))
        except UnanswerableError as error:
            return web.Response(status=error.status, text=f"{error}\n")

    return done


def _answered_by(explain: Explain) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def explained(request: web.Request) -> web.Response:
        try:
            record = await explain(await request.read())
        except UnanswerableError as error:
            return web.Response(status=error.status, text=f"{error}\n")
        return web.Response(body=record, content_type="application/json")

    return explained


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Keep a browser from guessing at the content, and anybody from keeping an old state."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
