"""The intake over a real gRPC channel on loopback, with raw bytes as Envoy sends them."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import grpc
import pytest

from protos import access_log_pb2 as pb
from tests.telemetry.entries import TYPE_URL, entry, usage
from tidegate.telemetry import access_log
from tidegate.telemetry.record import RequestRecord

PATH = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"


class Seen:
    """What the intake handed on."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.ended: list[str] = []
        self.progressed: list[str] = []
        self.malformed = 0
        self._fault = fault

    def end(self, record: RequestRecord) -> None:
        self.ended.append(record.reservation)
        if self._fault and record.reservation == "bad":
            raise self._fault

    def progress(self, record: RequestRecord) -> None:
        self.progressed.append(record.reservation)

    def count(self) -> None:
        self.malformed += 1


Send = Callable[[list[bytes]], "grpc.aio.StreamUnaryCall[bytes, bytes]"]


@contextlib.asynccontextmanager
async def intake(seen: Seen) -> AsyncIterator[Send]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((access_log.Intake(seen.end, seen.progress, seen.count).handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(PATH)
            yield lambda messages: method(iter(messages), timeout=10)
    finally:
        await server.stop(None)


def batch(*entries: pb.HTTPAccessLogEntry, name: str | None = None) -> bytes:
    message = pb.StreamAccessLogsMessage()
    if name is not None:
        message.identifier.log_name = name
    message.http_logs.log_entry.extend(entries)
    return message.SerializeToString()


def request(reservation: str, kind: pb.AccessLogType = pb.DownstreamEnd) -> pb.HTTPAccessLogEntry:
    return entry(decision={"reservation": reservation}, kind=kind)


async def test_entries_are_handed_on_in_order_by_whether_the_request_is_over() -> None:
    seen = Seen()
    async with intake(seen) as send:
        first = batch(request("a"), request("b", pb.DownstreamPeriodic), request("c"), name="tidegate")
        answer = await send([first, batch(request("b"))])
    assert answer == b""
    assert seen.ended == ["a", "c", "b"]
    assert seen.progressed == ["b"]
    assert seen.malformed == 0


async def test_a_stream_of_another_log_is_read_and_dropped() -> None:
    seen = Seen()
    async with intake(seen) as send:
        await send([batch(request("a"), name="somebody"), batch(request("b"))])
        await send([batch(request("c"), name="tidegate")])
    assert seen.ended == ["c"]
    assert seen.malformed == 0


async def test_a_stream_without_a_name_is_dropped_and_counted() -> None:
    seen = Seen()
    async with intake(seen) as send:
        await send([batch(request("a")), batch(request("b"))])
    assert seen.ended == []
    assert seen.malformed == 2


def of_the_intake(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Leave out the poller of gRPC, which outlives the loop of an earlier test and says so."""
    return [record for record in caplog.records if record.name != "asyncio"]


async def test_a_broken_message_costs_neither_the_stream_nor_its_neighbours(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    with caplog.at_level(logging.INFO):
        async with intake(seen) as send:
            await send([batch(request("a"), name="tidegate"), b"\xff\xff", b"\x0a\xff", batch(request("b"))])
    assert seen.ended == ["a", "b"]
    assert seen.malformed == 2
    assert len(of_the_intake(caplog)) == 1


async def test_an_exception_over_one_entry_costs_only_that_entry(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(fault=KeyError("pool"))
    with caplog.at_level(logging.INFO):
        async with intake(seen) as send:
            await send([batch(request("bad"), request("b"), name="tidegate"), batch(request("bad"), request("c"))])
    assert seen.ended == ["bad", "b", "bad", "c"]
    assert seen.malformed == 2
    assert [record.exc_info is not None for record in of_the_intake(caplog)] == [True]


async def test_an_entry_with_unreadable_usage_is_counted_and_still_ends_its_request() -> None:
    seen = Seen()
    broken = entry(tokens=usage())
    packed = broken.common_properties.metadata.typed_filter_metadata["ai_usage"]
    assert packed.type_url == TYPE_URL
    packed.value = b"\xff"
    async with intake(seen) as send:
        await send([batch(broken, request("b"), name="tidegate")])
    assert seen.ended == ["r-1", "b"]
    assert seen.malformed == 1


async def test_a_counter_that_fails_does_not_end_the_stream() -> None:
    seen = Seen()

    def fail() -> None:
        raise RuntimeError("the counter is broken")

    seen.count = fail  # type: ignore[method-assign]
    async with intake(seen) as send:
        await send([b"\xff", batch(request("a"), name="tidegate")])
    assert seen.ended == ["a"]


async def test_log_entries_of_tcp_connections_are_passed_over() -> None:
    seen = Seen()
    # Field 3 is tcp_logs, which the slice leaves out.
    tcp = batch(name="tidegate") + b"\x1a\x02\x0a\x00"
    async with intake(seen) as send:
        await send([tcp, batch(request("a"))])
    assert seen.ended == ["a"]
    assert seen.malformed == 0
