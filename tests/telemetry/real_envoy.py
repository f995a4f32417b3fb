"""A real Envoy with a decision service, an engine and our access-log intake around it; all on loopback, all bounded."""

import asyncio
import contextlib
import json
import shutil
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web

from protos import ext_proc_pb2
from tests.ports import free_port
from tests.telemetry.envoy_bootstrap import bootstrap
from tidegate.telemetry import access_log
from tidegate.telemetry.record import RequestRecord

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 3},
}


LATE: asyncio.Queue[str] = asyncio.Queue()
"""The requests to ``/late`` that reached the engine."""


def find_envoy() -> Path | None:
    packaged = Path(sysconfig.get_paths()["purelib"]) / "envoy" / "_bin" / "envoy"
    found = packaged if packaged.exists() else shutil.which("envoy")
    return Path(found) if found else None


async def engine(request: web.Request) -> web.StreamResponse:
    match request.path:
        case "/json":
            return web.json_response(
                {"id": "1", "object": "chat.completion", "model": "m", "choices": [], "usage": USAGE}
            )
        case "/full":
            return web.json_response({"error": {"message": "full"}}, status=503)
        case "/unknown":
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        case "/late":
            LATE.put_nowait(request.path)
            await asyncio.sleep(30)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    chunk = {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {}}]}
    await asyncio.sleep(0.05)
    for _ in range(600 if request.path == "/long" else 5):
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await asyncio.sleep(0.05 if request.path == "/long" else 0.01)
        if request.path == "/broken" and request.transport is not None:
            request.transport.abort()
            return response
    if request.path != "/silent":
        await response.write(b"data: " + json.dumps({**chunk, "choices": [], "usage": USAGE}).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


class Decisions:
    """An ext_proc service that names ``destinations``, or refuses what bears the header ``x-refuse``."""

    def __init__(self, destinations: str) -> None:
        self.destinations = destinations

    async def process(
        self, requests: AsyncIterator[ext_proc_pb2.ProcessingRequest], context: Any
    ) -> AsyncIterator[ext_proc_pb2.ProcessingResponse]:
        async for request in requests:
            headers = {h.key: h.raw_value.decode() for h in request.request_headers.headers.headers}
            reply = ext_proc_pb2.ProcessingResponse()
            facts: dict[str, Any] = {"pool": "default", "model": "m", "api": "chat_completions"}
            if "x-refuse" in headers:
                reply.immediate_response.status.code = 404  # type: ignore[assignment]
                reply.immediate_response.body = b"{}"
                reply.dynamic_metadata.update({"tidegate": facts})
            elif "x-abort" in headers:
                await context.abort(grpc.StatusCode.INTERNAL, "broken")
            else:
                reply.request_headers.SetInParent()
                facts |= {
                    "reservation": headers["x-request"],
                    "prompt_tokens": 6,
                    "count_source": "exact",
                    "stream": headers[":path"] != "/json",
                }
                reply.dynamic_metadata.update(
                    {"tidegate": facts, "envoy.lb": {"x-gateway-destination-endpoint": self.destinations}}
                )
            yield reply
            return

    def handler(self) -> grpc.GenericRpcHandler:
        method = grpc.stream_stream_rpc_method_handler(
            self.process,
            ext_proc_pb2.ProcessingRequest.FromString,
            ext_proc_pb2.ProcessingResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler("envoy.service.ext_proc.v3.ExternalProcessor", {"Process": method})


class Gateway:
    """What a test talks to: the address of Envoy, and the records that came of it."""

    def __init__(self, port: int, decisions: Decisions, live: int, dead: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.decisions = decisions
        self.live = f"127.0.0.1:{live}"
        self.dead = f"127.0.0.1:{dead}"
        self.ended: asyncio.Queue[RequestRecord] = asyncio.Queue()
        self.progress: asyncio.Queue[RequestRecord] = asyncio.Queue()
        self.malformed = 0

    def count_malformed(self) -> None:
        self.malformed += 1

    async def end(self) -> RequestRecord:
        return await asyncio.wait_for(self.ended.get(), 10)


@contextlib.asynccontextmanager
async def running(binary: Path) -> AsyncIterator[Gateway]:
    listen, live, dead = free_port(), free_port(), free_port()
    decisions = Decisions(f"127.0.0.1:{live}")
    gateway = Gateway(listen, decisions, live, dead)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            decisions.handler(),
            access_log.Intake(gateway.ended.put_nowait, gateway.progress.put_nowait, gateway.count_malformed).handler(),
        )
    )
    control = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", engine)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", live).start()
    config = json.dumps(bootstrap(listen, control, [live, dead]))
    envoy = await asyncio.create_subprocess_exec(
        *(str(binary), "--config-yaml", config, "--use-dynamic-base-id", "--concurrency", "1", "-l", "error"),
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(20):
            while not await _listens(listen):  # noqa: ASYNC110  nothing tells when Envoy listens
                await asyncio.sleep(0.05)
        yield gateway
    finally:
        with contextlib.suppress(ProcessLookupError):
            envoy.kill()
        await envoy.wait()
        await runner.cleanup()
        await server.stop(None)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
