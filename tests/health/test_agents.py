"""The receiving service, over real gRPC: who is heard, and who is not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from protos import gpu_health_pb2 as pb
from tests.authority import HERE, Authority, tls
from tests.health.recorder import receiving
from tests.ports import free_port
from tidegate.config_tls import Tls
from tidegate.health import agents

METHOD = f"/{agents.SERVICE}/{agents.METHOD}"


def message(node: str = "gpu-7", sequence: int = 1, boot: str = "b1", **fields: Any) -> bytes:
    return pb.NodeReport(node=node, boot_id=boot, sequence=sequence, interval_ms=2000, **fields).SerializeToString()


@contextlib.asynccontextmanager
async def stream(port: int, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Any]:
    place = f"{HERE}:{port}"
    channel = grpc.aio.secure_channel(place, credentials) if credentials else grpc.aio.insecure_channel(place)
    async with channel, asyncio.timeout(20):
        yield channel.stream_stream(METHOD)()


async def told(call: Any, *reports: bytes) -> list[int]:
    """Send ``reports`` and return the sequences of the receipts."""
    receipts = []
    for report in reports:
        await call.write(report)
        receipts.append(pb.Receipt.FromString(await call.read()).sequence)
    return receipts


async def refused(call: Any, *reports: bytes) -> grpc.StatusCode:
    """Send ``reports`` and return the status with which the stream ends."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for report in reports:
            await call.write(report)
    code: grpc.StatusCode = await call.code()
    return code


async def test_every_report_has_its_receipt_and_the_last_one_is_kept() -> None:
    port = free_port()
    async with receiving(port) as (registry, recorder), stream(port) as call:
        assert await told(call, message(sequence=1), message(sequence=2), message(sequence=5)) == [1, 2, 5]
        heard = registry.last("gpu-7")
        assert heard is not None
        assert heard.report.sequence == 5
        assert [report.sequence for report in recorder.reports] == [1, 2, 5]


async def test_a_repeated_report_is_counted_and_changes_nothing() -> None:
    port = free_port()
    async with receiving(port) as (_, recorder), stream(port) as call:
        assert await told(call, message(sequence=3), message(sequence=3), message(sequence=2)) == [3, 3, 2]
        assert [report.sequence for report in recorder.reports] == [3]
        assert recorder.refusals == ["stale", "stale"]


async def test_the_end_of_a_stream_is_no_word_about_the_node() -> None:
    port = free_port()
    async with receiving(port) as (registry, recorder):
        async with stream(port) as call:
            await told(call, message())
        async with asyncio.timeout(10):
            while not recorder.ended:  # noqa: ASYNC110 - polls a list
                await asyncio.sleep(0.01)
        assert recorder.ended == ["gpu-7"]
        assert registry.last("gpu-7") is not None


@pytest.mark.parametrize("data", [b"\xff\xff", b"", message(node=""), message(sequence=0)])
async def test_what_is_no_report_ends_the_stream(data: bytes) -> None:
    port = free_port()
    async with receiving(port) as (registry, recorder), stream(port) as call:
        assert await refused(call, data) is grpc.StatusCode.INVALID_ARGUMENT
        assert (len(registry), recorder.refusals) == (0, ["malformed"])


async def test_a_report_that_is_too_large_ends_the_stream() -> None:
    port = free_port()
    huge = message(driver_version="x" * agents.MAX_REPORT_BYTES)
    async with receiving(port) as (registry, _), stream(port) as call:
        assert await refused(call, huge) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(registry) == 0


async def test_a_stream_speaks_for_one_node() -> None:
    port = free_port()
    async with receiving(port) as (registry, _), stream(port) as call:
        await told(call, message())
        assert await refused(call, message(node="gpu-8")) is grpc.StatusCode.PERMISSION_DENIED
        assert registry.last("gpu-8") is None


async def test_a_newer_stream_speaks_for_the_node() -> None:
    port = free_port()
    async with receiving(port) as (_, recorder), stream(port) as old, stream(port) as new:
        await told(old, message(sequence=1))
        await told(new, message(sequence=2))
        assert await refused(old, message(sequence=3)) is grpc.StatusCode.ABORTED
        assert await told(new, message(sequence=4)) == [4]
        assert recorder.ended == []


async def test_nodes_are_bounded() -> None:
    port = free_port()
    async with receiving(port, max_nodes=1) as (registry, recorder), stream(port) as first, stream(port) as second:
        await told(first, message())
        assert await refused(second, message(node="gpu-8")) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await told(first, message(sequence=2)) == [2]
        assert (len(registry), recorder.refusals) == (1, ["full"])


async def test_streams_are_bounded() -> None:
    port = free_port()
    async with receiving(port, max_streams=1) as (registry, recorder), stream(port) as first:
        await told(first, message())
        async with stream(port) as second:
            assert await refused(second, message(node="gpu-8")) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await told(first, message(sequence=2)) == [2]
        assert (len(registry), recorder.refusals) == (1, ["streams"])


async def test_a_stream_that_brings_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "IDLE_SECONDS", 0.1)
    port = free_port()
    async with receiving(port), stream(port) as call:
        assert await refused(call) is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_an_agent_speaks_for_the_node_that_its_certificate_names_and_for_no_other(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    port = free_port()

    def credentials(by: Authority | None, name: str = "gpu-7") -> grpc.ChannelCredentials:
        certificate, key = (None, None) if by is None else (path.read_bytes() for path in by.issue("a", name))
        return grpc.ssl_channel_credentials(ours.certificate.read_bytes(), key, certificate)

    def expired(by: Authority) -> grpc.ChannelCredentials:
        issued = by.issue_expired("gpu-7")
        return grpc.ssl_channel_credentials(ours.certificate.read_bytes(), *issued)

    async with receiving(port, Tls.model_validate(tls(ours, theirs))) as (registry, recorder):
        async with stream(port, credentials(theirs)) as call:
            assert await refused(call, message(node="gpu-8")) is grpc.StatusCode.PERMISSION_DENIED
        async with stream(port, credentials(theirs, "*.example.com")) as call:
            assert await refused(call, message(node="gpu-8.example.com")) is grpc.StatusCode.PERMISSION_DENIED
        assert recorder.refusals == ["identity", "identity"]
        for stranger in (credentials(None), credentials(ours), expired(theirs)):
            async with stream(port, stranger) as call:
                assert await refused(call, message()) is grpc.StatusCode.UNAVAILABLE
        assert len(registry) == 0
        async with stream(port, credentials(theirs)) as call:
            assert await told(call, message()) == [1]
