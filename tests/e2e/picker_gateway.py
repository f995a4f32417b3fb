"""A gateway that owns Envoy's configuration, its endpoint picker Tidegate, and engines that tell what they got."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.stack import Process, tidegate
from tests.envoy_process import EnvoyProcess, running_envoy
from tests.ports import free_port
from tests.telemetry.envoy_bootstrap import HTTP2, ROUTER, TYPES, cluster

DESTINATION = ["envoy.lb", "x-gateway-destination-endpoint"]
MAX_BODY = 64 << 20
FULL_DUPLEX = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SEND",
    "response_body_mode": "FULL_DUPLEX_STREAMED",
    "response_trailer_mode": "SEND",
}
"""What gateways configure for the protocol."""


def modes(request: str, response: str) -> dict[str, str]:
    return {
        "request_header_mode": "SEND",
        "request_body_mode": request,
        "request_trailer_mode": "SKIP",
        "response_header_mode": "SEND",
        "response_body_mode": response,
        "response_trailer_mode": "SKIP",
    }


@dataclass
class Engine:
    """Answers chats with a few tokens, and everything else with what it got."""

    port: int
    got: list[dict[str, Any]] = field(default_factory=list)
    pause: float = 0.0
    """Seconds between two events of a stream."""
    fail: int = 0
    """The status of its answers, where not 0."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        digest = hashlib.sha256(body).hexdigest()
        self.got.append({"path": request.path, "size": len(body), "sha256": digest, "headers": request.headers.copy()})
        if self.fail:
            return web.json_response({"error": {"message": "no"}}, status=self.fail)
        model = _model(body)
        if b'"stream": true' in body:
            return await self._stream(request, model)
        told = {
            "size": len(body),
            "sha256": digest,
            "model": model,
            "usage": {"prompt_tokens": 11, "completion_tokens": 5},
        }
        response = web.json_response(told)
        response.headers.extend([("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-engine", str(self.port))])
        return response

    async def _stream(self, request: web.Request, model: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for number in range(4):
            event = {"model": model, "choices": [{"delta": {"content": f"t{number}"}}]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(self.pause)
        usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}}
        # In the middle of a word, as TCP may cut it.
        text = f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode()
        await response.write(text[:30])
        await asyncio.sleep(0.02)
        await response.write(text[30:])
        return response

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Engine"]:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield self
        finally:
            await runner.cleanup()


def _model(body: bytes) -> str:
    try:
        return str(json.loads(body)["model"])
    except (ValueError, KeyError, TypeError):
        return ""


@dataclass
class Gateway:
    """A running gateway."""

    url: str
    admin: str
    envoy: EnvoyProcess
    picker: Process
    engines: Sequence[Engine]
    client: aiohttp.ClientSession

    @property
    def chat(self) -> str:
        """Where chats go."""
        return f"{self.url}/v1/chat/completions"

    async def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return the picker's samples by name and labels."""
        async with self.client.get(f"{self.admin}/metrics") as answer:
            text = await answer.text()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples called ``name`` that bear ``labels``."""
        wanted = set(labels.items())
        return sum(value for (key, has), value in (await self.metrics()).items() if key == name and wanted <= set(has))

    async def inflight(self) -> float:
        """Return the reservations that live."""
        return await self.sum("tidegate_inflight_reservations")

    async def until(self, name: str, value: float, **labels: str) -> None:
        """Wait until the sum of ``name`` is ``value``."""
        try:
            async with asyncio.timeout(10):
                while await self.sum(name, **labels) != value:  # noqa: ASYNC110  it is in another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{name} is {await self.sum(name, **labels)}, not {value}") from None


def settings(ports: Sequence[int], transport: str, policy: str = "round_robin", **extra: Any) -> dict[str, Any]:
    """Return the configuration of a picker for engines at these ports."""
    return {
        "admin": {"port": free_port()},
        "control": {"xds_port": free_port(), "ext_proc_port": free_port(), "ext_proc_transport": transport},
        "scrape": {"interval_seconds": 0.2},
        "unknown_paths": {"pool": "default"},
        "pools": [
            {
                "name": "default",
                "engine": "none",
                "policy": policy,
                "endpoints": [{"address": f"127.0.0.1:{port}"} for port in ports],
            }
        ],
        **extra,
    }


def _bootstrap(
    listen: int, admin: int, picker: int, ports: list[int], mode: Mapping[str, str], hint: Any
) -> dict[str, Any]:
    metadata_key = {"key": DESTINATION[0], "path": [{"key": DESTINATION[1]}]}
    served_key = {"key": DESTINATION[0], "path": [{"key": f"{DESTINATION[1]}-served"}]}
    round_robin = {
        "name": "rr",
        "typed_config": {"@type": f"{TYPES}.load_balancing_policies.round_robin.v3.RoundRobin"},
    }
    override_host = {
        "@type": f"{TYPES}.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [{"metadata": metadata_key}],
        "selected_host_key": served_key,
        "fallback_policy": {"policies": [{"typed_extension_config": round_robin}]},
    }
    policy = {"typed_extension_config": {"name": "override_host", "typed_config": override_host}}
    ext_proc = {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": f"{TYPES}.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
            "message_timeout": "5s",
            "failure_mode_allow": False,
            "processing_mode": dict(mode),
            "metadata_options": {
                "receiving_namespaces": {"untyped": ["envoy.lb"]},
                "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
            },
        },
    }
    told = {"x-gateway-destination-endpoint-subset": hint}
    subset = {
        "name": "envoy.filters.http.set_filter_state",
        "typed_config": {
            "@type": f"{TYPES}.filters.http.set_metadata.v3.Config",
            "metadata": [{"metadata_namespace": "envoy.lb.subset_hint", "value": told, "allow_overwrite": True}],
        },
    }
    route = {
        "cluster": "pool",
        "timeout": "0s",
        "retry_policy": {"retry_on": "connect-failure,gateway-error", "num_retries": 2},
    }
    connections = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "http_filters": [*([] if hint is None else [subset]), ext_proc, ROUTER],
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
            ],
        },
    }
    at = {"socket_address": {"address": "127.0.0.1", "port_value": listen}}
    chain = {"filters": [{"name": "hcm", "typed_config": connections}]}
    listener = {"name": "in", "address": at, "per_connection_buffer_limit_bytes": MAX_BODY, "filter_chains": [chain]}
    pool = cluster("pool", ports, load_balancing_policy={"policies": [policy]})
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "static_resources": {
            "listeners": [listener],
            "clusters": [pool, cluster("picker", [picker], **HTTP2)],
        },
    }


@asynccontextmanager
async def gateway(
    folder: Path,
    transport: str,
    *,
    mode: Mapping[str, str] = FULL_DUPLEX,
    hint: Any = None,
    down: int = 0,
    engine_count: int = 2,
    **extra: Any,
) -> AsyncIterator[Gateway]:
    """Run engines, a picker and an Envoy.

    Args:
        folder: for files.
        transport: of the picker.
        mode: in which Envoy sends requests and responses.
        hint: what Envoy says in ``envoy.lb.subset_hint``; nothing, if ``None``.
        down: how many of the engines do not listen, the first ones.
        engine_count: how many engines there are.
        extra: sections of the picker's configuration, and its ``policy``.
    """
    engines = sorted((Engine(free_port()) for _ in range(engine_count)), key=lambda engine: engine.port)
    ports = [engine.port for engine in engines]
    config = settings(ports, transport, **extra)
    file = folder / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    admin = f"http://127.0.0.1:{config['admin']['port']}"
    listen, envoy_admin = free_port(), free_port()
    hint = hint(ports) if callable(hint) else hint
    bootstrap = _bootstrap(listen, envoy_admin, config["control"]["ext_proc_port"], ports, mode, hint)
    async with AsyncExitStack() as running:
        for engine in engines[down:]:
            await running.enter_async_context(engine.serving())
        picker = Process(tidegate("picker", "--config", str(file)), folder / "picker.log")
        running.callback(picker.kill)
        client = await running.enter_async_context(aiohttp.ClientSession())
        await _ready(client, admin, picker)
        envoy = await running.enter_async_context(running_envoy(json.dumps(bootstrap), envoy_admin))
        yield Gateway(f"http://127.0.0.1:{listen}", admin, envoy, picker, engines, client)


async def _ready(client: aiohttp.ClientSession, admin: str, picker: Process) -> None:
    async with asyncio.timeout(30):
        while True:
            assert picker.process.poll() is None, picker.log.read_text()
            try:
                async with client.get(f"{admin}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)
