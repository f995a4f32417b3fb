"""The stream of reports to the control plane, made anew whenever it breaks. Only what is known now is ever sent."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from tidegate import regular_file
from tidegate.agent.backoff import Backoff

METHOD: Final = "/tidegate.health.v1.GpuHealth/Report"

ANSWER_SECONDS = 10.0
"""Within which a connection comes about, a report is sent, and its receipt comes back."""

STEADY_SECONDS = 10.0
"""Reports that arrived for so long count as a success; a stream that ends sooner is made anew after longer waits."""

_log = logging.getLogger(__name__)

Make = Callable[[int], bytes]
"""Makes the report with this sequence, of what is known now."""


class Tls(NamedTuple):
    """Our certificate with its chain, its key, and the authorities that may have signed the control plane's (PEM)."""

    certificate: Path
    key: Path
    ca: Path
    server_name: str | None = None


class Broken(Exception):  # noqa: N818
    """The stream is over; the message says why."""


class Reporter:
    """Sends a report whenever there is something new."""

    def __init__(self, target: str, make: Make, tls: Tls | None = None, rng: random.Random | None = None) -> None:
        """Report to ``target`` (``host:port``) what ``make`` makes."""
        self._target = target
        self._make = make
        self._tls = tls
        self._backoff = Backoff(rng or random.Random())  # noqa: S311 - not a secret
        self._sequence = 0
        self._news = asyncio.Event()
        self._known = False
        self._arrive_since: float | None = None

    def changed(self) -> None:
        """Send a report as soon as the last one was answered. Before the first time there is nothing to report."""
        self._known = True
        self._news.set()

    async def run(self) -> None:
        """Report for ever."""
        while True:
            try:
                await self._stream()
            except (Broken, OSError, grpc.aio.AioRpcError) as error:
                _end_if_cancelled()
                if self._steady:
                    self._backoff.succeeded()
                wait = self._backoff.failed()
                fields = {"control": self._target, "reason": _reason(error), "again_in_seconds": round(wait, 1)}
                _log.warning("reports do not arrive", extra={"fields": fields})
            await asyncio.sleep(wait)

    @property
    def _steady(self) -> bool:
        since = self._arrive_since
        return since is not None and time.monotonic() - since >= STEADY_SECONDS

    async def _stream(self) -> None:
        """Report until the stream breaks.

        Raises:
            Broken, AioRpcError: it broke, or never came about.
            OSError: our certificates cannot be read.
        """
        self._arrive_since = None
        async with self._channel() as channel:
            await _connected(channel)
            call: Any = channel.stream_stream(METHOD)(wait_for_ready=False)
            if self._known:
                self._news.set()  # what a new connection has not heard yet
            while True:
                _end_if_cancelled()
                await self._news.wait()
                self._news.clear()
                await self._report(call)
                if self._arrive_since is None:
                    self._arrive_since = time.monotonic()
                    _log.info("reports arrive", extra={"fields": {"control": self._target}})

    async def _report(self, call: Any) -> None:
        self._sequence += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await call.write(self._make(self._sequence))
                receipt = await call.read()
        except TimeoutError:
            raise Broken("a report was not answered") from None
        except asyncio.InvalidStateError:
            receipt = grpc.aio.EOF
        if receipt is grpc.aio.EOF:
            code = await call.code()
            raise Broken(f"the control plane ended the stream: {code.name} {await call.details()}".strip())

    def _channel(self) -> grpc.aio.Channel:
        options = [
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.enable_http_proxy", 0),
        ]
        if self._tls is None:
            return grpc.aio.insecure_channel(self._target, options)
        if self._tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))  # type: ignore[arg-type]
        # Read anew for each connection: certificates are renewed while we run.
        credentials = grpc.ssl_channel_credentials(
            *(regular_file.read(path) for path in (self._tls.ca, self._tls.key, self._tls.certificate))
        )
        return grpc.aio.secure_channel(self._target, credentials, options)


async def _connected(channel: grpc.aio.Channel) -> None:
    """Wait for the connection; gRPC's own further attempts, at a pace of its own, are not waited for.

    Raises:
        Broken: none comes about.
    """
    states = grpc.ChannelConnectivity
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while (state := channel.get_state(try_to_connect=True)) is not states.READY:
                if state is states.TRANSIENT_FAILURE:
                    raise Broken("no connection comes about: refused, or not trusted by either side")
                await channel.wait_for_state_change(state)
    except TimeoutError:
        raise Broken("no connection comes about in time") from None


def _end_if_cancelled() -> None:
    """Raise what a cancellation raises, if there was one: gRPC swallows some that come as a stream breaks."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}".strip()
    return str(error)
