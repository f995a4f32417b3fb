"""What a scraper makes of the answers that it gets."""

import asyncio
import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines import pages
from tests.engines.engine_server import Connection, EngineServer, Handler, answering, sending, serving
from tests.engines.scrapes import LLAMACPP, LLAMACPP_REPORT, Record, logged, scraping
from tests.ports import free_port
from tidegate.config_sections import Scrape
from tidegate.engines import scraper as module
from tidegate.engines.scraper import Scraper
from tidegate.fleet.events import FleetEvent, LoadReported, ScrapeFailed, ScrapeStarted
from tidegate.fleet.load import EngineReport


async def test_a_scrape_announces_itself_before_it_asks_and_reports_what_it_heard() -> None:
    started_before_asked: list[bool] = []
    record: Record

    async def handler(connection: Connection) -> None:
        started_before_asked.append(isinstance(record.events[-1], ScrapeStarted))
        await LLAMACPP(connection)

    async with serving(handler) as server, scraping({server.address: "llamacpp"}) as (_, record):
        await record.end(server.address, 3)
        assert (
            record.of(server.address)[:4]
            == [
                ScrapeStarted(server.address),
                LoadReported(server.address, LLAMACPP_REPORT),
            ]
            * 2
        )
        assert record.outcomes[:2] == [(server.address, "ok")] * 2
        assert server.heads[0].startswith("GET /metrics ")
        assert server.connections == 1
    assert all(started_before_asked)
    assert all(0 < seconds < 10 for seconds in record.seconds)


async def test_every_engine_is_asked_where_its_page_is() -> None:
    async with serving(answering(pages.TRTLLM)) as server, scraping({server.address: "trtllm"}) as (_, record):
        expected = EngineReport(running=5, waiting=2, kv_usage=0.4, kv_capacity_tokens=32_000)
        assert await record.end(server.address) == LoadReported(server.address, expected)
        assert server.heads[0].startswith("GET /prometheus/metrics ")


@pytest.mark.parametrize(
    ("handler", "outcome"),
    [
        (answering(pages.LLAMACPP, status="500 Internal Server Error"), "status"),
        (answering("", "Location: http://169.254.169.254/", status="301 Moved Permanently"), "status"),
        (answering("Unauthorized", status="401 Unauthorized"), "status"),
        (answering("x" * 200_000), "too_large"),
        (answering("llamacpp:requests_processing 1\n" * 2000), "too_large"),
        (answering("<html><body>Welcome</body></html>", "Content-Type: text/html"), "unreadable"),
        (answering('[{"iter": 1}]', "Content-Type: application/json"), "unreadable"),
        (answering(b"\x1f\x8b", "Content-Encoding: gzip"), "unreadable"),
        (sending(), "unreadable"),
        (sending(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", *[b"u"] * 99, pause=0.05), "timeout"),
    ],
    ids=["500", "301", "401", "bytes", "series", "html", "json", "gzip", "reset", "slow"],
)
async def test_a_bad_answer_is_a_failure_and_nothing_against_the_endpoints_life(handler: Handler, outcome: str) -> None:
    async with serving(handler) as server, scraping({server.address: "llamacpp"}, seconds=0.4) as (_, record):
        event = await record.end(server.address)
        await record.until(lambda: bool(record.outcomes))
        assert isinstance(event, ScrapeFailed)
        assert not event.unreachable
        assert event.reason
        assert "\n" not in event.reason
        assert record.outcomes[0] == (server.address, outcome)


async def test_a_refused_connection_is_a_failure_that_speaks_against_the_endpoints_life() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with scraping({address: "vllm"}) as (_, record):
        await record.until(lambda: bool(record.outcomes))
        assert record.of(address)[:2] == [
            ScrapeStarted(address),
            ScrapeFailed(address, unreachable=True, reason="cannot connect: Connection refused"),
        ]
        assert record.outcomes == [(address, "unreachable")]


async def test_a_page_without_a_known_series_is_an_empty_report() -> None:
    async with serving(answering(pages.TGI)) as server, scraping({server.address: "vllm"}) as (_, record):
        assert await record.end(server.address) == LoadReported(server.address, EngineReport())
        await record.until(lambda: bool(record.outcomes))
        assert record.outcomes[0] == (server.address, "no_series")


async def test_an_engine_without_a_page_is_only_connected_to() -> None:
    async with serving(LLAMACPP) as server, scraping({server.address: "none"}) as (_, record):
        assert await record.end(server.address, 2) == LoadReported(server.address, EngineReport())
        assert record.outcomes[0] == (server.address, "ok")
        assert not server.heads
        await server.stop()
        await record.until(lambda: isinstance(record.ends(server.address)[-1], ScrapeFailed))
        failed = record.ends(server.address)[-1]
        assert isinstance(failed, ScrapeFailed)
        assert failed.unreachable


async def test_an_ipv6_endpoint_is_reached() -> None:
    port = free_port()
    try:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "::1", port)
    except OSError:
        pytest.skip("this host has no IPv6")
    async with server, scraping({f"[::1]:{port}": "none"}) as (_, record):
        assert await record.end(f"[::1]:{port}") == LoadReported(f"[::1]:{port}", EngineReport())


async def test_an_endpoint_that_hangs_delays_no_other() -> None:
    async with (
        serving(sending(then="hang")) as slow,
        serving(LLAMACPP) as good,
        scraping({slow.address: "llamacpp", good.address: "llamacpp"}, seconds=60.0) as (_, record),
    ):
        await record.end(good.address, 3)
        await record.until(lambda: record.of(slow.address) == [ScrapeStarted(slow.address)])


async def test_a_rank_that_vanished_makes_one_report_unknown() -> None:
    one = "\n".join(line for line in pages.VLLM_TWO_RANKS.splitlines() if 'engine="1"' not in line)
    async with (
        serving(answering(pages.VLLM_TWO_RANKS)) as server,
        scraping({server.address: "vllm"}) as (_, record),
    ):
        await record.end(server.address)
        server.handler = answering(one)
        await record.until(lambda: _running(record.ends(server.address)) == 6)
        seen = [
            _running(record.ends(server.address)[: number + 1]) for number in range(len(record.ends(server.address)))
        ]
        assert seen[seen.index(None) - 1 : seen.index(None) + 2] == [8, None, 6]


def _running(events: list[FleetEvent]) -> float | None:
    last = events[-1]
    assert isinstance(last, LoadReported)
    return last.report.running


async def test_an_endpoint_that_comes_back_is_reported_and_each_change_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tidegate.engines")
    server = EngineServer(LLAMACPP)
    address = server.address

    def last() -> FleetEvent:
        return record.ends(address)[-1]

    async with scraping({address: "llamacpp"}) as (_, record):
        await record.end(address, 2)
        await server.start()
        await record.until(lambda: isinstance(last(), LoadReported))
        server.handler = answering("", status="503 Service Unavailable")
        await record.until(lambda: isinstance(last(), ScrapeFailed))
        server.handler = answering("# EOF\n")
        await record.until(lambda: isinstance(last(), LoadReported))
        server.handler = LLAMACPP
        await record.until(lambda: last() == LoadReported(address, LLAMACPP_REPORT))
        await record.until(lambda: record.outcomes[-1] == (address, "ok"))
        await record.end(address, len(record.ends(address)) + 2)
        await server.stop()

    seen = [logged(entry) for entry in caplog.records if entry.name == "tidegate.engines"]
    assert seen[:5] == [
        {"msg": "scrape", "address": address, "engine": "llamacpp", "outcome": outcome, "reason": reason}
        for outcome, reason in (
            ("unreachable", "cannot connect: Connection refused"),
            ("ok", ""),
            ("status", "status 503 instead of 200"),
            ("no_series", "no usable series"),
            ("ok", ""),
        )
    ]


async def test_an_endpoint_that_is_well_from_the_start_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate.engines")
    async with serving(LLAMACPP) as server, scraping({server.address: "llamacpp"}) as (_, record):
        await record.end(server.address, 3)
        assert not [entry for entry in caplog.records if entry.name == "tidegate.engines"]


async def test_a_fault_of_our_own_says_nothing_of_the_endpoint_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_args: object) -> EngineReport:
        raise ZeroDivisionError

    async with serving(LLAMACPP) as server:
        with monkeypatch.context() as patch:
            patch.setattr(module, "read", broken)
            async with scraping({server.address: "llamacpp"}) as (_, record):
                await record.until(lambda: (server.address, "fault") in record.outcomes)
                assert record.ends(server.address) == []
                patch.undo()
                await record.until(lambda: record.ends(server.address) != [])
                assert isinstance(record.ends(server.address)[0], LoadReported)


async def test_faults_of_our_own_come_and_go_in_one_line_for_all_endpoints(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when there are no file descriptors left: some scrapes fail, others do not, endpoint by endpoint."""
    caplog.set_level(logging.INFO, "tidegate.engines")
    calls = 0

    def broken_every_other_time(*_args: object) -> EngineReport:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise ZeroDivisionError
        return EngineReport(running=1)

    monkeypatch.setattr(module, "read", broken_every_other_time)
    async with (
        serving(LLAMACPP) as one,
        serving(LLAMACPP) as two,
        scraping({one.address: "llamacpp", two.address: "llamacpp"}) as (_, record),
    ):
        await record.until(lambda: len(record.outcomes) >= 12)
    assert len([entry for entry in caplog.records if entry.name == "tidegate.engines"]) == 1


async def test_whoever_takes_the_events_cannot_end_the_scrapes(caplog: pytest.LogCaptureFixture) -> None:
    record = Record()
    calls = 0

    def emit(event: FleetEvent) -> None:
        nonlocal calls
        calls += 1
        if calls < 6:
            raise ZeroDivisionError
        record.emit(event)

    async with serving(LLAMACPP) as server:
        scraper = Scraper(Scrape(interval_seconds=0.05), emit, random.Random(7))
        scraper.watch({server.address: "llamacpp"})
        running = asyncio.create_task(scraper.run())
        await record.end(server.address)
        running.cancel()
        await asyncio.wait([running])
    assert [logged(entry)["reason"] for entry in caplog.records] == ["unexpected ZeroDivisionError"]


@given(st.floats(0.05, 3600), st.integers())
def test_pauses_differ_by_a_tenth_at_most(interval: float, seed: int) -> None:
    rng = random.Random(seed)
    pauses = [module.pause(interval, rng) for _ in range(20)]
    assert all(0.9 * interval * (1 - 1e-9) <= pause <= 1.1 * interval * (1 + 1e-9) for pause in pauses)
    assert len(set(pauses)) > 1


@given(st.floats(0.05, 3600), st.integers())
def test_the_first_scrape_comes_soon_and_not_for_all_at_once(interval: float, seed: int) -> None:
    rng = random.Random(seed)
    pauses = [module.first_pause(interval, rng) for _ in range(20)]
    assert all(0 <= pause <= min(interval, 0.2) for pause in pauses)
    assert len(set(pauses)) > 1


async def test_a_start_waits_for_the_first_try_of_each_endpoint_and_for_no_other() -> None:
    refusing = f"127.0.0.1:{free_port()}"
    async with (
        serving(LLAMACPP) as server,
        scraping({server.address: "llamacpp", refusing: "none"}) as (tested, record),
    ):
        await asyncio.sleep(0)
        assert tested.untried() == ("2 endpoints were not tried yet",)
        await record.until(lambda: not tested.untried())
        assert {address for address, _ in record.outcomes} == {server.address, refusing}
        tested.watch({server.address: "llamacpp", "192.0.2.1:1": "none"})
        assert tested.untried() == ()


async def test_a_start_does_not_wait_for_ever_for_an_engine_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIED_WITHIN", 0.2)
    silent = asyncio.Event()

    async def handler(_: Connection) -> None:
        await silent.wait()

    async with serving(handler) as server, scraping({server.address: "llamacpp"}, seconds=30) as (tested, record):
        await record.until(lambda: not tested.untried())
        assert record.outcomes == []
        silent.set()
