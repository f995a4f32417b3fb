"""Who may call what over gRPC, for each kind of call and each service that there is."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from extproc import transport
from protos.discovery_pb2 import DeltaDiscoveryRequest
from tests.authority import HERE, Authority, tls
from tests.extproc.h2_client import HEALTH
from tests.health.recorder import Recorder
from tests.ports import free_port
from tests.runtime.test_credentials import SERVING, CountingDesk
from tests.xds.test_server import until
from tidegate.config_control import Control
from tidegate.config_tls import ServerTls
from tidegate.health import agents
from tidegate.health.registry import Registry
from tidegate.runtime import authorization, services
from tidegate.telemetry import access_log
from xds import services as discovery
from xds.server import DiscoveryServer
from xds.type_urls import CLUSTER

DOMAIN = "fleet.example"
ENVOY, AGENT = f"spiffe://{DOMAIN}/tidegate/envoy", f"spiffe://{DOMAIN}/tidegate/agent/gpu-7"
NOBODY = f"spiffe://{DOMAIN}/tidegate/visitor"
DENIED = grpc.StatusCode.PERMISSION_DENIED
EXT_PROC = f"/{transport.SERVICE}/{transport.METHOD}"
Identity = tuple[bytes, bytes] | None


class Signed:
    """Authorities, and certificates of each role."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = Authority(folder, "ours"), Authority(folder, "theirs")
        self.settings = {**tls(self.ours, self.theirs), "trust_domain": DOMAIN}

    def server(self) -> ServerTls:
        return ServerTls.model_validate({key: self.settings[key] for key in ServerTls.model_fields})

    def issue(self, uri: str) -> Identity:
        certificate, key = self.theirs.issue_uri("peer", uri)
        return key.read_bytes(), certificate.read_bytes()

    @contextlib.asynccontextmanager
    async def channel(self, port: int, identity: Identity) -> AsyncIterator[grpc.aio.Channel]:
        key, certificate = identity or (None, None)
        credentials = grpc.ssl_channel_credentials(self.ours.certificate.read_bytes(), key, certificate)
        async with grpc.aio.secure_channel(f"{HERE}:{port}", credentials) as channel:
            yield channel


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return Signed(tmp_path_factory.mktemp("signed"))


def one_of_each_kind(asked: list[str]) -> grpc.GenericRpcHandler:
    """Return a service with a method of each kind in both of its forms, under the name of one that Envoys may call."""

    async def one(request: Any, _: Any) -> bytes:
        asked.append("called")
        return request if isinstance(request, bytes) else b"".join([part async for part in request])

    async def several(_: Any, context: Any) -> None:
        asked.append("called")
        await context.write(b"1")

    async def yielded(_: Any, __: Any) -> AsyncIterator[bytes]:
        asked.append("called")
        yield b"1"

    return grpc.method_handlers_generic_handler(
        discovery.AGGREGATED.name,
        {
            "unary_unary": grpc.unary_unary_rpc_method_handler(one),
            "unary_stream": grpc.unary_stream_rpc_method_handler(several),
            "unary_stream_yielded": grpc.unary_stream_rpc_method_handler(yielded),
            "stream_unary": grpc.stream_unary_rpc_method_handler(one),
            "stream_stream": grpc.stream_stream_rpc_method_handler(several),
            "stream_stream_yielded": grpc.stream_stream_rpc_method_handler(yielded),
        },
    )


async def code(channel: grpc.aio.Channel, method: str, kind: str = "stream_stream") -> grpc.StatusCode:
    """Return the status with which ``method`` ends before anything is asked.

    gRPC's client may fail of itself when it sends something on a stream that is being refused.
    """
    streams, answers = kind.split("_")[:2]
    make: Any = getattr(channel, f"{streams}_{answers}")(method)
    call = make(timeout=20) if streams == "stream" else make(b"", timeout=20)
    found: grpc.StatusCode = await call.code()
    return found


async def answered(channel: grpc.aio.Channel, method: str, kind: str) -> bool:
    """Return whether ``method`` answers."""
    streams, answers = kind.split("_")[:2]
    make: Any = getattr(channel, f"{streams}_{answers}")(method)
    call = make(iter([b"1"]) if streams == "stream" else b"1", timeout=20)
    answer = await call if answers == "unary" else await call.read()
    call.cancel()
    return bool(answer)


async def check_health(channel: grpc.aio.Channel) -> bytes:
    check: Any = channel.unary_unary(HEALTH)
    answer: bytes = await check(b"", timeout=20)
    return answer


KINDS = (
    *("unary_unary", "unary_stream", "unary_stream_yielded"),
    *("stream_unary", "stream_stream", "stream_stream_yielded"),
)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_of_any_kind_takes_the_role(kind: str, signed: Signed) -> None:
    asked: list[str] = []
    port = free_port()
    method = f"/{discovery.AGGREGATED.name}/{kind}"
    async with (
        asyncio.timeout(60),
        services.grpc_server(HERE, port, (one_of_each_kind(asked),), 0.1, tls=signed.server()),
    ):
        for wrong in (AGENT, NOBODY):
            async with signed.channel(port, signed.issue(wrong)) as channel:
                assert await code(channel, method, kind) is DENIED
        async with signed.channel(port, None) as channel:
            assert await code(channel, method, kind) is grpc.StatusCode.UNAVAILABLE
        assert asked == []
        async with signed.channel(port, signed.issue(ENVOY)) as channel:
            assert await answered(channel, method, kind)
            assert await code(channel, f"/{discovery.AGGREGATED.name}/none", kind) is grpc.StatusCode.UNIMPLEMENTED
        assert asked == ["called"]


async def test_a_service_that_is_not_listed_is_nobodys(signed: Signed) -> None:
    async def one(_: Any, __: Any) -> bytes:
        return b""

    handler = grpc.method_handlers_generic_handler("a.New", {"Get": grpc.unary_unary_rpc_method_handler(one)})
    port = free_port()
    serving = services.grpc_server(HERE, port, (handler,), 0.1, tls=signed.server())
    async with asyncio.timeout(60), serving, signed.channel(port, signed.issue(ENVOY)) as channel:
        assert await code(channel, "/a.New/Get", "unary_unary") is DENIED


async def test_each_service_is_for_one_role_and_health_for_both(signed: Signed) -> None:
    node = agents.AgentService(Registry(10), Recorder(), authenticated=True)
    log = access_log.Intake(lambda _: None, lambda _: None, lambda: None)
    handlers = (*DiscoveryServer(lambda _: None).handlers(), log.handler(), node.handler())
    methods = [
        (f"/{service.name}/{method}", "stream_stream", AGENT)
        for service in discovery.SERVICES
        for method in (service.state_of_the_world, service.delta)
    ]
    methods += [
        (access_log.PATH, "stream_unary", AGENT),
        (f"/{agents.SERVICE}/{agents.METHOD}", "stream_stream", ENVOY),
    ]
    port = free_port()
    async with asyncio.timeout(60), services.grpc_server(HERE, port, handlers, 0.1, tls=signed.server()):
        for uri in (AGENT, ENVOY):
            async with signed.channel(port, signed.issue(uri)) as channel:
                for method, kind, wrong in methods:
                    if wrong == uri:
                        assert await code(channel, method, kind) is DENIED, method
                assert await check_health(channel) == SERVING
        async with signed.channel(port, signed.issue(ENVOY)) as channel:
            log_stream: Any = channel.stream_unary(access_log.PATH)
            assert await log_stream(iter(()), timeout=20) == b""
        async with signed.channel(port, signed.issue(NOBODY)) as channel:
            assert await code(channel, HEALTH, "unary_unary") is DENIED


@pytest.mark.parametrize("over", ["grpc", "h2"])
async def test_decisions_are_for_envoys_alone(over: str, signed: Signed) -> None:
    port = free_port()
    control = Control.model_validate({"ext_proc_port": port, "ext_proc_transport": over, "tls": signed.settings})
    async with asyncio.timeout(60), services.ext_proc(control, port, CountingDesk()):
        async with signed.channel(port, signed.issue(AGENT)) as channel:
            assert await code(channel, EXT_PROC) is DENIED
        expired = signed.theirs.issue_expired("127.0.0.1")
        for untrusted in (None, expired):
            async with signed.channel(port, untrusted) as channel:
                assert await code(channel, EXT_PROC) is grpc.StatusCode.UNAVAILABLE
        async with signed.channel(port, signed.issue(ENVOY)) as channel:
            assert await check_health(channel) == SERVING


async def test_an_envoy_is_told_what_is_for_the_node_that_its_certificate_names(signed: Signed) -> None:
    server = DiscoveryServer(lambda _: None, named=authorization.named(signed.server()))
    method = f"/{discovery.AGGREGATED.name}/{discovery.AGGREGATED.delta}"
    port = free_port()
    async with asyncio.timeout(60), services.grpc_server(HERE, port, server.handlers(), 0.1, tls=signed.server()):
        for name, denied in (("edge-1", False), ("edge-2", True)):
            async with signed.channel(port, signed.issue(f"{ENVOY}/edge-1")) as channel:
                request = DeltaDiscoveryRequest(type_url=CLUSTER)
                request.node.id = name
                call: Any = channel.stream_stream(method)(timeout=20)
                await call.write(request.SerializeToString())
                if denied:
                    assert await call.code() is DENIED
                else:
                    await until(server.standings)
                call.cancel()
