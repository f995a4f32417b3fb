"""Pages of engines that are served over TLS: who is believed, and what is said where nobody is."""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.authority import Authority
from tests.e2e.tls_engine import METRICS, secured
from tests.ports import free_port
from tidegate.certificates import Outgoing
from tidegate.config_checks import Check
from tidegate.engines import fetch
from tidegate.engines.check import Standing, Subject
from tidegate.engines.checker import Checker
from tidegate.engines.outcome import Outcome, ScrapeError

URI = "spiffe://fleet.example/engine"


class Engines:
    """An engine known by a URI, and one known by its name."""

    def __init__(self, folder: Path, running: contextlib.ExitStack) -> None:
        self.theirs, self.ours = Authority(folder, "theirs"), Authority(folder, "ours")
        self.by_uri = running.enter_context(secured(self.theirs.issue_uri("uri", URI), self.ours.certificate))
        self.by_name = running.enter_context(secured(self.theirs.issue("n", "engine.internal"), self.ours.certificate))
        self.by_ip = running.enter_context(secured(self.theirs.issue("ip"), self.ours.certificate))
        self.identity = self.ours.issue("tidegate")
        self.strangers = Authority(folder, "strangers")

    def outgoing(self, server_name: str | None = None, *names: str, **other: Any) -> Outgoing:
        certificate, key = map(str, self.identity)
        settings = {"ca": str(self.theirs.certificate), "certificate": certificate, "key": key, **other}
        return Outgoing(**settings, server_name=server_name, names=names)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with contextlib.ExitStack() as running:
        yield Engines(tmp_path_factory.mktemp("engines"), running)


async def page(port: int, tls: Outgoing) -> bytes:
    async with fetch.open_session() as session:
        url = f"https://127.0.0.1:{port}/metrics"
        return await fetch.fetch(session, url, timeout_seconds=30, max_bytes=1000, tls=tls)


async def test_an_engine_is_believed_that_bears_the_name(engines: Engines) -> None:
    assert await page(engines.by_uri, engines.outgoing(None, "other", URI)) == METRICS
    assert await page(engines.by_name, engines.outgoing("engine.internal")) == METRICS
    assert await page(engines.by_name, engines.outgoing("sni.internal", "engine.internal")) == METRICS
    assert await page(engines.by_ip, engines.outgoing("127.0.0.1")) == METRICS


async def test_no_other_is(engines: Engines) -> None:
    for port, tls in (
        (engines.by_uri, engines.outgoing(None, f"{URI}s", "127.0.0.1")),
        (engines.by_name, engines.outgoing("other.internal")),
        (engines.by_name, engines.outgoing("engine.internal", "other.internal")),
        (engines.by_name, engines.outgoing()),
        (engines.by_name, engines.outgoing("engine.internal", ca=str(engines.strangers.certificate))),
    ):
        with pytest.raises(ScrapeError, match="its certificate is not accepted") as caught:
            await page(port, tls)
        assert caught.value.outcome is Outcome.UNREACHABLE


async def test_an_engine_that_wants_a_certificate_answers_nobody_without(engines: Engines) -> None:
    with pytest.raises(ScrapeError):
        await page(engines.by_name, engines.outgoing("engine.internal", certificate=None, key=None))


async def test_nobody_is_believed_while_the_authorities_cannot_be_read(engines: Engines, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    tls = engines.outgoing("engine.internal", ca=str(ca))
    with pytest.raises(ScrapeError, match="not accepted"):
        await page(engines.by_name, tls)
    ca.write_bytes(engines.theirs.certificate.read_bytes())
    tls.renew()
    assert await page(engines.by_name, tls) == METRICS
    ca.write_text("half")
    tls.renew()
    assert await page(engines.by_name, tls) == METRICS


async def test_what_does_not_speak_tls_is_unreachable(engines: Engines) -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    port, tls = free_port(), engines.outgoing("engine.internal")
    async with await asyncio.start_server(plain, "127.0.0.1", port):
        with pytest.raises(ScrapeError, match="the handshake failed") as caught:
            await page(port, tls)
    assert caught.value.outcome is Outcome.UNREACHABLE


async def test_one_of_which_nothing_is_heard_is_asked_over_tls_where_it_is_reached_so(engines: Engines) -> None:
    address, found = f"127.0.0.1:{engines.by_name}", asyncio.Queue[str]()
    check = Check(name="progress", interval_seconds=0.05)
    tls = engines.outgoing("engine.internal")

    def observe(name: str, finding: str, seconds: float) -> None:
        if seconds:
            found.put_nowait(f"{name} {finding}")

    silent = Standing(inflight=1, still_seconds=30.0)
    checker = Checker(lambda _: silent, lambda _: None, random.Random(7), observe)
    checker.watch({(address, "progress"): Subject("default", address, "vllm", (), check, tls=tls)})
    running = asyncio.create_task(checker.run())
    try:
        async with asyncio.timeout(30):
            assert await found.get() == "progress passed"
    finally:
        running.cancel()
        await asyncio.wait([running])
