"""What comes to the discovery port that no Envoy sends: refused, and nobody else is the worse for it."""

import contextlib
from typing import Any

import grpc
import pytest

from protos.discovery_pb2 import DeltaDiscoveryRequest
from tests.ports import free_port
from tests.xds.test_server import ask, call, receive, serving
from tests.xds.wire import fleet
from xds.server import DiscoveryServer
from xds.services import SERVICES
from xds.type_urls import CLUSTER, ENDPOINT


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    more = b""
    while number > 127:
        more += bytes([number & 127 | 128])
        number >>= 7
    return more + bytes([number])


def _nested(depth: int) -> bytes:
    """Return a request whose node has lists within one another in its metadata."""
    value = b""
    for _ in range(depth):
        value = _field(6, _field(1, value))
    entry = _field(1, b"deep") + _field(2, value)
    return _field(1, _field(3, _field(1, entry)))


@pytest.mark.parametrize(
    "message",
    [_nested(10_000), b"\xff" * 1000, _field(1, b"\xff"), b"\x0a\xff\xff\xff\x7f"],
    ids=["deep", "bytes", "node", "cut"],
)
async def test_what_cannot_be_parsed_ends_its_stream_alone(message: bytes) -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    async with serving(server, free_port()) as channel:
        good, bad = call(channel), call(channel)
        await ask(good, ENDPOINT, ("a",))
        await receive(good)
        await bad.write(message)
        assert await bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await bad.details() == "the request cannot be parsed"
        assert server.streams == 1
        good.cancel()


async def test_megabytes_that_mean_nothing_are_no_harm() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    unknown = _field(15, b"x" * 3_000_000)
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        wanted = DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=["a"]).SerializeToString()
        await stream.write(wanted + unknown)
        assert [one.name for one in (await receive(stream)).resources] == ["a"]
        stream.cancel()


@pytest.mark.parametrize("method", ["FetchClusters", "FetchEndpoints", "FetchListeners", "FetchRoutes"])
async def test_nothing_is_told_but_on_streams(method: str) -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    async with serving(server, free_port()) as channel:
        for service in SERVICES:
            fetch: Any = channel.unary_unary(f"/{service.name}/{method}")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await fetch(b"", timeout=20)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("last", [b"", b"\xff" * 10], ids=["nothing more", "what cannot be parsed"])
async def test_a_client_that_ends_before_its_first_response_is_answered_and_nothing_is_logged(
    last: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({f"a{number}": "1" * 1000 for number in range(1000)}))
    wanted = DeltaDiscoveryRequest(type_url=CLUSTER).SerializeToString()
    async with serving(server, free_port()) as channel:
        for _ in range(10):
            stream = call(channel)
            await stream.write(wanted)
            if last:
                await stream.write(last)
            await stream.done_writing()
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await stream.read() is not grpc.aio.EOF:
                    pass
            assert await stream.code() is (grpc.StatusCode.INVALID_ARGUMENT if last else grpc.StatusCode.OK)
    assert caplog.records == []
