"""A scripted stand-in for Consul's HTTP API: blocking queries of one service's health, and every way they go wrong."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from tests.ports import free_port


def instance(number: int, *checks: str, address: str = "", **more: Any) -> dict[str, Any]:
    """Return an instance as ``/v1/health/service`` lists it."""
    service = {"ID": f"llm-{number}", "Service": "llm", "Address": address, "Port": 8000, "Tags": [], "Meta": {}}
    return {
        "Node": {"Node": f"node-{number}", "Address": f"10.0.0.{number}", "Datacenter": "dc1"},
        "Service": {**service, **more},
        "Checks": [{"CheckID": f"c{at}", "Status": status} for at, status in enumerate(checks or ("passing",))],
    }


class ConsulApi:
    """Attributes.

    index: the index it says.
    instances: what there is.
    status: the HTTP status of all answers.
    token: the token without which 403 is answered; empty for none.
    silent: questions are not answered at all.
    blocks: questions with the current index wait for a change, as they should.
    asked: the parameters of each question, with its time.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.index: int | str = 1
        self.instances: list[dict[str, Any]] | str = []
        self.status = 200
        self.token = ""
        self.silent = False
        self.blocks = True
        self.asked: list[dict[str, str]] = []
        self.times: list[float] = []
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set(self, index: int | str, *instances: dict[str, Any]) -> None:
        """Change what there is."""
        self.index, self.instances = index, list(instances)
        self.wake()

    def wake(self) -> None:
        """Answer all questions that wait."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _health(self, request: web.Request) -> web.Response:
        self.asked.append({"service": request.match_info["service"], **request.query})
        self.times.append(asyncio.get_running_loop().time())
        if self.silent:
            await asyncio.sleep(60)
        if self.token and request.headers.get("X-Consul-Token") != self.token:
            return web.Response(status=403, text="Permission denied: lacks secret-policy")
        if self.blocks and request.query.get("index") == str(self.index):
            wait = float(request.query["wait"].removesuffix("ms")) / 1000
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)
        text = self.instances if isinstance(self.instances, str) else json.dumps(self.instances)
        return web.Response(
            status=self.status, text=text, content_type="application/json", headers={"X-Consul-Index": str(self.index)}
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/v1/health/service/{service}", self._health)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield
        finally:
            await runner.cleanup()
