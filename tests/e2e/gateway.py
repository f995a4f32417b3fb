"""What stands around an Envoy that the discovery server alone configures: a stub that decides, and engines."""

import asyncio
import hashlib
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import grpc
from aiohttp import web

from protos import access_log_pb2, ext_proc_pb2
from tests.envoy_process import EnvoyProcess, running_envoy
from tests.ports import free_port
from tidegate.config import Config
from tidegate.fleet.health import Reachability
from tidegate.fleet.view import EndpointView, PoolView
from xds import bootstrap, build
from xds.events import DiscoveryEvent, Observe
from xds.secrets import NO_MATERIAL, Material
from xds.server import DiscoveryServer
from xds.snapshot import Snapshot

MAX_BODY = 25_000_000
PORT_70000 = bytes.fromhex("12060a0418f0a204")
"""A fragment of a serialized listener: appended to one, it gives it a port that does not exist."""

CHAT = "/v1/chat/completions"


def view(name: str, *addresses: str) -> PoolView:
    unknown = (0, 0, 0.0, 0.0, None, None, None, None)
    members = tuple(EndpointView(address, 1, Reachability.UNKNOWN, False, *unknown) for address in addresses)
    return PoolView(name, "none", ("*",), members)


@dataclass
class Decider:
    """An ext_proc service that answers every body with what the test says."""

    port: int
    pool: str | None = "small"
    destinations: str = ""
    refuse: ext_proc_pb2.ImmediateResponse | None = None
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[int] = field(default_factory=list)
    sets: dict[str, str] = field(default_factory=dict)
    """Headers that it sets, or tries to."""
    gate: asyncio.Event | None = None
    """What every decision waits for, where there is one."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 << 20), ("grpc.so_reuseport", 0)])
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(self._process)
        name = "envoy.service.ext_proc.v3.ExternalProcessor"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Process": handler}),))
        server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)

    async def _process(self, requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for raw in requests:
            request = ext_proc_pb2.ProcessingRequest.FromString(raw)
            reply = ext_proc_pb2.ProcessingResponse()
            if request.HasField("request_headers"):
                pairs = request.request_headers.headers.headers
                self.headers.append({pair.key: pair.raw_value.decode("latin-1") for pair in pairs})
                reply.request_headers.SetInParent()
                yield reply.SerializeToString()
                continue
            for sent in request.attributes.values():
                self.headers.append({name: value.string_value.decode() for name, value in sent.fields.items()})
            self.bodies.append(len(request.request_body.body))
            if self.gate is not None:
                await self.gate.wait()
            if self.refuse is not None:
                reply.immediate_response.CopyFrom(self.refuse)
            else:
                self._decide(reply)
            yield reply.SerializeToString()
            return

    def _decide(self, reply: ext_proc_pb2.ProcessingResponse) -> None:
        reply.request_body.response.clear_route_cache = True
        # Without a header mutation, an empty one at least, Envoy ignores clear_route_cache.
        mutation = reply.request_body.response.header_mutation
        mutation.SetInParent()
        for name, value in self.sets.items():
            option = mutation.set_headers.add(append_action=2)  # overwrite or add
            option.header.key, option.header.raw_value = name, value.encode()
        if self.pool is not None:
            reply.dynamic_metadata.update({"tidegate": {"pool": self.pool, "reservation": "r1"}})
        if self.destinations:
            reply.dynamic_metadata.update({"envoy.lb": {"x-gateway-destination-endpoint": self.destinations}})


@dataclass
class Engine:
    """An HTTP server that says who it is and what it was sent."""

    port: int
    status: int = 200
    seen: list[dict[str, str]] = field(default_factory=list)
    pairs: list[list[tuple[bytes, bytes]]] = field(default_factory=list)
    """The headers of each request as they came, repeated ones included."""
    targets: list[str] = field(default_factory=list)
    """Method and path of each request."""
    digests: list[str] = field(default_factory=list)
    """The SHA-256 of each body."""
    script: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    """What answers instead, where it is set."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, backlog=2048).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        size = len(body)
        self.seen.append({name.lower(): value for name, value in request.headers.items()})
        self.pairs.append([(name.lower(), value) for name, value in request.raw_headers])
        self.targets.append(f"{request.method} {request.raw_path}")
        self.digests.append(hashlib.sha256(body).hexdigest())
        if self.script is not None:
            return await self.script(request)
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        answer = {"object": "chat.completion", "model": "m", "port": self.port, "size": size, "usage": usage}
        spoofed = {"x-gateway-destination-endpoint-served": "spoofed"}
        return web.json_response(answer, status=self.status, headers=spoofed)


@dataclass
class Control:
    """The discovery service and the access-log intake on one port; can be stopped and started again."""

    port: int
    server: DiscoveryServer = field(init=False)
    events: list[DiscoveryEvent] = field(default_factory=list)
    entries: list[access_log_pb2.HTTPAccessLogEntry] = field(default_factory=list)
    observe: Observe = lambda _: None
    """Told of every event as well."""
    _grpc: grpc.aio.Server | None = None

    async def start(self, snapshot: Snapshot | None) -> None:
        self.server = DiscoveryServer(self._happened)
        if snapshot is not None:
            self.server.publish(snapshot)
        self._grpc = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        log: grpc.RpcMethodHandler[Any, Any] = grpc.stream_unary_rpc_method_handler(self._log)
        name = "envoy.service.accesslog.v3.AccessLogService"
        intake = grpc.method_handlers_generic_handler(name, {"StreamAccessLogs": log})
        self._grpc.add_generic_rpc_handlers((*self.server.handlers(), intake))
        self._grpc.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._grpc.start()

    def _happened(self, event: DiscoveryEvent) -> None:
        self.events.append(event)
        self.observe(event)

    async def stop(self) -> None:
        if self._grpc is not None:
            await self._grpc.stop(0)
            self._grpc = None

    async def _log(self, messages: AsyncIterator[bytes], _context: object) -> bytes:
        async for raw in messages:
            self.entries.extend(access_log_pb2.StreamAccessLogsMessage.FromString(raw).http_logs.log_entry)
        return b""


@dataclass
class Gateway:
    """Everything together."""

    config: Config
    control: Control
    decider: Decider
    engines: tuple[Engine, Engine]
    envoy: EnvoyProcess
    session: aiohttp.ClientSession
    last_headers: Mapping[str, str] = field(default_factory=dict)
    material: Material = NO_MATERIAL

    def snapshot(self, *addresses: str) -> Snapshot:
        return build.snapshot(self.config, [view("small", *addresses), view("large", *addresses)], self.material)

    @property
    def clients(self) -> str:
        """The URL that clients use; nobody asks whose certificate it is."""
        return f"http{'' if self.config.listener.tls is None else 's'}://127.0.0.1:{self.config.listener.port}"

    async def post(
        self, size: int = 100, path: str = CHAT, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        async with self.session.post(
            self.clients + path, data=io.BytesIO(b"x" * size), headers=headers, ssl=False
        ) as response:
            self.last_headers = response.headers
            return response.status, json.loads(await response.read())

    async def served_by(self, size: int = 100) -> int:
        status, answer = await self.post(size)
        assert status == 200, answer
        return int(answer["port"])


async def eventually(holds: Callable[[], Any], seconds: float = 20.0, pause: float = 0.05) -> None:
    async with asyncio.timeout(seconds):
        while True:
            result = holds()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            await asyncio.sleep(pause)


def config_for(engines: tuple[Engine, Engine]) -> Config:
    first, second = engines
    return Config.model_validate(
        {
            "listener": {"port": free_port()},
            # The stubs speak gRPC, and the log is taken in beside the discovery service.
            "control": {"xds_port": free_port(), "ext_proc_port": free_port(), "ext_proc_transport": "grpc"},
            "envoy": {"admin_port": free_port()},
            "limits": {"max_body_bytes": MAX_BODY},
            "pools": (
                {"name": "small", "endpoints": ({"address": first.address},)},
                {"name": "large", "models": ("large",), "endpoints": ({"address": second.address},)},
            ),
        }
    )


@asynccontextmanager
async def standing(
    configure: Callable[[Config], Config] = lambda config: config,
    api_type: str = "DELTA_GRPC",
    observe: Observe = lambda _: None,
    material: Callable[[Config], Material] = lambda _: NO_MATERIAL,
) -> AsyncIterator[Gateway]:
    """Run a gateway with two engines, both in both pools.

    Args:
        configure: may change its configuration.
        api_type: the variant of the discovery protocol that Envoy speaks.
        observe: told of what happens on the discovery streams.
        material: returns the certificates for what is configured.
    """
    engines = (Engine(free_port()), Engine(free_port()))
    config = configure(config_for(engines))
    control = Control(config.control.xds_port, observe=observe)
    decider = Decider(config.control.ext_proc_port)
    addresses = tuple(engine.address for engine in engines)
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.serving())
        await stack.enter_async_context(decider.serving())
        views, secrets = [view("small", *addresses), view("large", *addresses)], material(config)
        await control.start(build.snapshot(config, views, secrets))
        stack.push_async_callback(control.stop)
        text = bootstrap.render(config, bootstrap.template().replace("DELTA_GRPC", api_type))
        envoy = await stack.enter_async_context(running_envoy(text, config.envoy.admin_port))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Gateway(config, control, decider, engines, envoy, session, material=secrets)
