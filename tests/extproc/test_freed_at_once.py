"""What was held for a request is freed when the request is over, and not when the garbage collector comes by.

Bodies are what memory is used for: with many clients that leave, or are turned away, a few seconds of them are several
times what may wait.
"""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from extproc import transport
from extproc.stream import Stream
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import HELLO, POST, body_message, headers_message
from tests.extproc.h2_client import PROCESS, Counts
from tests.extproc.test_grpc_transport import HoldingDesk
from tests.extproc.test_waiting import FullDesk, turnaway
from tests.ports import free_port
from tidegate.config_control import Control
from tidegate.runtime import services
from tidegate.scheduling.line import Why

REQUESTS = 5


class Known(Stream):
    """A stream, which holds the body, of which it is known whether it is there still."""

    __slots__ = ("__weakref__",)


class Both:
    """A desk that counts streams as well."""

    def __init__(self, desk: FakeDesk, counts: Counts) -> None:
        self._desk, self._counts = desk, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name) if hasattr(self._desk, name) else getattr(self._counts, name)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> "weakref.WeakSet[Known]":
    """Return what is there of the streams, without a collector."""
    there: weakref.WeakSet[Known] = weakref.WeakSet()

    def known() -> Known:
        there.add(stream := Known())
        return stream

    monkeypatch.setattr(transport, "Stream", known)
    return there


@asynccontextmanager
async def uncollected() -> AsyncIterator[None]:
    """Have no garbage collected."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def full(answer: Why | None = None) -> Callable[[], FullDesk]:
    def made() -> FullDesk:
        desk = FullDesk()
        desk.answer = None if answer is None else turnaway(answer)
        return desk

    return made


ENDINGS: dict[str, tuple[Callable[[], FakeDesk], bytes]] = {
    "is served": (FakeDesk, HELLO),
    "cannot be read": (FakeDesk, b'{"model'),
    "is turned away": (full(Why.FULL), HELLO),
    "leaves while it waits": (full(), HELLO),
    "has waited for too long": (full(), HELLO),
    "goes after a wait": (full(), HELLO),
    "leaves while it is counted": (HoldingDesk, HELLO),
    "is out of time while it is counted": (HoldingDesk, HELLO),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("over", ["h2", "grpc"])
async def test_nothing_is_left_of_a_request_that(over: str, ending: str, there: "weakref.WeakSet[Known]") -> None:
    (make, body), counts = ENDINGS[ending], Counts()
    desk, port = make(), free_port()
    headers = {**POST, "x-request-timeout": "0.05"} if "out of time" in ending else POST
    control = Control.model_validate({"ext_proc_transport": over})
    async with (
        asyncio.timeout(20),
        services.ext_proc(control, port, Both(desk, counts), grace=0.1),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        uncollected(),
    ):
        for _ in range(REQUESTS):
            call: Any = channel.stream_stream(PROCESS)()
            await call.write(headers_message(headers))
            await call.read()
            await call.write(body_message(body))
            if isinstance(desk, FullDesk) and desk.answer is None:
                await desk.came.wait()
                (wait,) = desk.waits
                desk.came.clear()
                desk.waits.clear()
                if "for too long" in ending:
                    wait.told.set_result(turnaway(Why.EXPIRED))
                elif "goes" in ending:
                    wait.go()
                del wait
            elif "is counted" in ending and isinstance(desk, HoldingDesk):
                await desk.holding.wait()
                desk.holding.clear()
            if "leaves" in ending:
                call.cancel()
            else:
                while await call.read() is not grpc.aio.EOF:
                    pass
        while len(counts.ended) < REQUESTS or there:  # noqa: ASYNC110  nobody says so
            await asyncio.sleep(0.01)
    assert counts.started == REQUESTS
