"""The admin pages: metrics, health and status, over plain HTTP. They only answer; nothing can be changed here.

``/healthz`` says that the process lives, ``/readyz`` that it can do its work: restart on the one, route on the other.
"""

import json
from collections.abc import Awaitable, Callable, Sequence

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


def no_tenants() -> JsonObject:
    """Return the page of the tenants where there are none."""
    return {"tenants": [], "requests_held": 0}


def make_app(
    metrics_text: Callable[[], bytes],
    unready: Callable[[], Sequence[str]],
    status: Callable[[], JsonObject],
    tenants: Callable[[], JsonObject] = no_tenants,
) -> web.Application:
    """Return the application.

    Args:
        metrics_text: the page for Prometheus, in text format 0.0.4.
        unready: why the control plane cannot serve; empty when it can. One line each.
        status: the fleet (``status.describe``).
        tenants: the tenants and what they may still use.
    """

    async def index(_: web.Request) -> web.Response:
        lines = (f"{path:<10} {text}\n" for path, text in PAGES.items())
        return web.Response(text="Tidegate\n\n" + "".join(lines))

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
        "/": index,
        "/metrics": metrics,
        "/healthz": healthz,
        "/readyz": readyz,
        "/status": state,
        "/tenants": budgets,
    }
    for path, page in pages.items():
        app.router.add_get(path, page, allow_head=False)
    app.on_response_prepare.append(_set_headers)
    return app


def _json(page: JsonObject) -> web.Response:
    return web.Response(text=json.dumps(page, allow_nan=False), content_type="application/json")


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Keep a browser from guessing at the content, and anybody from keeping an old state."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
