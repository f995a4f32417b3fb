"""Many endpoints checked at once: each by its own schedule, none at another's expense."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.engines.checks.asked import check
from tests.engines.engine_server import Connection, answering, sending, serving
from tests.ports import free_port
from tests.simulator import engines as simulated
from tidegate.config_checks import Check
from tidegate.engines import checker as module
from tidegate.engines import inquiry
from tidegate.engines.check import NOTHING_KNOWN, Standing, Subject
from tidegate.engines.checker import Checker
from tidegate.fleet.events import EvidenceReported, FleetEvent
from tidegate.fleet.evidence import Evidence, Verdict


class Record:
    """What a checker says, and what is known of the endpoints meanwhile."""

    def __init__(self) -> None:
        self.said: dict[tuple[str, str], list[Evidence]] = {}
        self.findings: list[tuple[str, str, float]] = []
        self.standing: dict[str, Standing] = {}
        self._news = asyncio.Event()

    def emit(self, event: FleetEvent) -> None:
        assert isinstance(event, EvidenceReported)
        self.said.setdefault((event.address, event.evidence.source), []).append(event.evidence)
        self._news.set()

    def observe(self, name: str, finding: str, seconds: float) -> None:
        self.findings.append((name, finding, seconds))
        self._news.set()

    async def until(self, address: str, verdict: Verdict, name: str = "http") -> Evidence:
        """Wait for the check to say so of ``address``."""
        async with asyncio.timeout(10):
            while not (said := self.said.get((address, name))) or said[-1].verdict is not verdict:
                self._news.clear()
                await self._news.wait()
        return said[-1]

    async def found(self, name: str, finding: str, number: int = 1) -> None:
        """Wait for so many findings."""
        async with asyncio.timeout(10):
            while len([one for one in self.findings if one[:2] == (name, finding)]) < number:
                self._news.clear()
                await self._news.wait()


def subjects(addresses: Iterable[str], *settings: Check) -> dict[tuple[str, str], Subject]:
    """Return the question ``settings`` to each address."""
    return {(at, one.name): Subject("default", at, "vllm", (), one) for at in addresses for one in settings}


@asynccontextmanager
async def checking(addresses: Iterable[str], *settings: Check) -> AsyncIterator[tuple[Checker, Record]]:
    record = Record()
    checker = Checker(
        lambda address: record.standing.get(address, NOTHING_KNOWN), record.emit, random.Random(7), record.observe
    )
    checker.watch(subjects(addresses, *settings))
    running = asyncio.create_task(checker.run())
    try:
        yield checker, record
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()


def http(**more: Any) -> Check:
    return check(name="http", interval_seconds=0.05, fall=2, rise=2, **more)


async def test_an_engine_is_said_to_be_well_and_ill_and_well_again(caplog: pytest.LogCaptureFixture) -> None:
    well, ill = answering("ok"), answering("no", status="503 Service Unavailable")
    with caplog.at_level(logging.INFO, "tidegate.engines"):
        async with serving(well) as server, checking([server.address], http()) as (checker, record):
            await record.until(server.address, Verdict.SOUND)
            server.handler = ill
            said = await record.until(server.address, Verdict.FAILED)
            assert (said.reasons, said.detail) == (("http_status",), "status 503")
            (state,) = checker.states()
            assert (state.check, state.verdict) == ("http", Verdict.FAILED)
            server.handler = well
            await record.until(server.address, Verdict.SOUND)
    verdicts = [vars(line)["fields"]["verdict"] for line in caplog.records]
    assert verdicts == ["failed", "sound"]


async def test_one_that_hangs_delays_nobody_and_each_question_ends_at_its_deadline() -> None:
    async with serving(sending(then="hang")) as hangs, serving(answering("ok")) as well:
        async with checking([hangs.address, well.address], http(timeout_seconds=0.2)) as (_, record):
            await record.found("http", "passed", 5)
            said = await record.until(hangs.address, Verdict.FAILED)
            assert said.reasons == ("http_timeout",)
        assert all(seconds < 1.0 for _, _, seconds in record.findings)


async def test_no_more_than_so_many_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 2)
    at_once: list[int] = []
    there = 0

    async def handler(connection: Connection) -> None:
        nonlocal there
        there += 1
        at_once.append(there)
        await asyncio.sleep(0.02)
        there -= 1
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with serving(handler) as one, serving(handler) as two, serving(handler) as three, serving(handler) as four:
        addresses = [one.address, two.address, three.address, four.address]
        async with checking(addresses, http()) as (_, record):
            await record.found("http", "passed", 12)
    assert max(at_once) == 2


async def test_of_a_pool_one_endpoint_at_a_time_is_asked_for_a_token() -> None:
    at_once: list[int] = []
    there = 0

    async def handler(connection: Connection) -> None:
        nonlocal there
        there += 1
        at_once.append(there)
        await asyncio.sleep(0.05)
        there -= 1
        raise ConnectionResetError

    settings = check(name="inference", interval_seconds=0.05, timeout_seconds=1.0)
    async with (
        serving(handler) as one,
        serving(handler) as two,
        checking([one.address, two.address], settings) as (_, record),
    ):
        await record.until(one.address, Verdict.FAILED, "inference")
        await record.until(two.address, Verdict.FAILED, "inference")

    assert set(at_once) == {1}


async def test_nothing_more_is_said_of_one_that_is_gone_and_one_that_stays_keeps_its_count() -> None:
    async with (
        serving(answering("ok")) as one,
        serving(answering("ok")) as two,
        checking([one.address, two.address], http()) as (checker, record),
    ):
        await record.until(one.address, Verdict.SOUND)
        await record.until(two.address, Verdict.SOUND)
        checker.watch(subjects([one.address], http()))
        two.heads.clear()
        await record.found("http", "passed", len(record.findings) + 5)
        assert two.heads == []
        assert [state.address for state in checker.states()] == [one.address]
        checker.watch(subjects([one.address], http(path="/other")))
        await record.found("http", "passed", len(record.findings) + 3)
        assert one.heads[-1].startswith("GET /other ")


async def test_whoever_takes_the_evidence_cannot_end_the_checks() -> None:
    async with serving(answering("ok")) as server, checking([server.address], http()) as (checker, record):
        taken = record.emit

        def fails(event: FleetEvent) -> None:
            taken(event)
            raise RuntimeError("full")

        checker._emit = fails
        await record.found("http", "passed", 4)


async def test_a_frozen_core_answers_its_page_and_is_found_by_its_requests() -> None:
    """F28: ``/health`` says 200 while nothing is decoded."""
    progress = check(name="progress", interval_seconds=0.05, still_seconds=1)
    async with simulated.serving(simulated.settings()) as (base,), aiohttp.ClientSession(base) as client:
        address = base.removeprefix("http://")
        await client.post("/fault", json={"freeze": True})
        async with checking([address], http(still_seconds=1), progress) as (_, record):
            await record.until(address, Verdict.SOUND)
            record.standing[address] = Standing(inflight=2, still_seconds=2.0, counted=True)
            said = await record.until(address, Verdict.FAILED, "progress")
            assert said.reasons == ("no_progress",)
            await record.found("http", "hollow")
            record.standing[address] = Standing(inflight=2, moved=True, counted=True)
            await record.until(address, Verdict.SOUND, "progress")


async def test_a_busy_engine_that_answers_late_has_not_failed() -> None:
    async with (
        serving(sending(then="hang")) as server,
        checking([server.address], http(timeout_seconds=0.05)) as (_, record),
    ):
        record.standing[server.address] = Standing(inflight=200, moved=True, counted=True)
        await record.found("http", "busy", 5)
        assert not record.said.get((server.address, "http"))
        record.standing[server.address] = Standing(inflight=200, still_seconds=12.0)
        await record.until(server.address, Verdict.FAILED)


async def test_nobody_there_fails_by_every_check_that_asks() -> None:
    address = f"127.0.0.1:{free_port()}"
    named = [check(name=name, interval_seconds=0.05, fall=2) for name in ("tcp", "http", "model_loaded", "inference")]
    async with checking([address], *named) as (_, record):
        for name in ("tcp", "http", "model_loaded", "inference"):
            said = await record.until(address, Verdict.FAILED, name)
            assert said.reasons == (f"{name}_unreachable",)


SILENT = Standing(inflight=2, still_seconds=30.0)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an inquiry take a second and not fifteen."""
    monkeypatch.setattr(inquiry, "PROBE", Check(name="progress", interval_seconds=0.35, timeout_seconds=0.3))
    monkeypatch.setattr(inquiry, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(inquiry, "AGAIN_SECONDS", 0.2)


@pytest.mark.usefixtures("hurried")
async def test_one_that_has_requests_and_is_silent_is_asked_and_left_until_it_answers() -> None:
    progress = check(name="progress", interval_seconds=0.05)
    async with serving(sending(then="hang")) as server, checking([server.address], progress) as (_, record):
        record.standing[server.address] = SILENT
        said = await record.until(server.address, Verdict.FAILED, "progress")
        assert said.reasons == ("no_answer",)
        assert [one for one in record.findings if one[1] == "timed_out"] != []
        record.standing[server.address] = NOTHING_KNOWN  # its requests have given up; it is asked all the same
        server.handler = answering("ok", status="404 Not Found")
        await record.until(server.address, Verdict.SOUND, "progress")


@pytest.mark.usefixtures("hurried")
async def test_one_that_is_silent_and_answers_is_asked_now_and_then_and_nothing_is_said_of_it() -> None:
    progress = check(name="progress", interval_seconds=0.05)
    async with serving(answering("ok")) as server, checking([server.address], progress) as (_, record):
        record.standing[server.address] = SILENT
        await record.found("progress", "passed", 2)
        await record.found("progress", "unknown", 5)
        assert record.said == {}
        assert len(server.heads) < len([one for one in record.findings if one[1] == "unknown"]) + 2


async def test_one_that_is_heard_of_is_asked_nothing() -> None:
    progress = check(name="progress", interval_seconds=0.05)
    async with serving(answering("ok")) as server, checking([server.address], progress) as (_, record):
        record.standing[server.address] = Standing(inflight=2, still_seconds=1.0, moved=True, since_moved=1.0)
        await record.found("progress", "passed", 5)
        assert server.heads == []
