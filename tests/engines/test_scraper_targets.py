"""The set of endpoints that a scraper watches."""

import asyncio
import random

import pytest

from tests.engines import pages
from tests.engines.engine_server import Connection, answering, serving
from tests.engines.scrapes import LLAMACPP, Record, scraping
from tidegate.config_sections import Scrape
from tidegate.engines.scraper import Scraper
from tidegate.fleet.events import LoadReported, ScrapeStarted
from tidegate.fleet.load import EngineReport


async def test_a_target_that_is_added_is_scraped_and_one_that_stays_is_not_disturbed() -> None:
    async with (
        serving(LLAMACPP) as first,
        serving(LLAMACPP) as second,
        scraping({first.address: "llamacpp"}) as (scraper, record),
    ):
        await record.end(first.address)
        scraper.watch({first.address: "llamacpp", second.address: "llamacpp"})
        await record.end(second.address, 2)
        assert first.connections == 1
        starts = sum(isinstance(event, ScrapeStarted) for event in record.of(first.address))
        assert 0 <= starts - len(record.ends(first.address)) <= 1


async def test_a_target_that_is_removed_is_heard_of_no_more() -> None:
    asked = asyncio.Event()

    async def handler(connection: Connection) -> None:
        asked.set()
        await asyncio.sleep(0.05)
        await LLAMACPP(connection)

    async with (
        serving(handler) as gone,
        serving(LLAMACPP) as stays,
        scraping({gone.address: "llamacpp", stays.address: "llamacpp"}) as (scraper, record),
    ):
        await asked.wait()
        scraper.watch({stays.address: "llamacpp"})
        before = len(record.of(gone.address))
        await record.end(stays.address, len(record.ends(stays.address)) + 4)
        assert len(record.of(gone.address)) == before


async def test_a_target_whose_engine_changes_is_asked_anew() -> None:
    async with (
        serving(answering(pages.TGI + pages.LLAMACPP)) as server,
        scraping({server.address: "llamacpp"}) as (scraper, record),
    ):
        await record.end(server.address)
        scraper.watch({server.address: "tgi"})
        await record.until(lambda: record.ends(server.address)[-1] == LoadReported(server.address, EngineReport(8, 3)))


async def test_a_set_with_an_unknown_engine_changes_nothing() -> None:
    async with serving(LLAMACPP) as server, scraping({server.address: "llamacpp"}) as (scraper, record):
        with pytest.raises(KeyError):
            scraper.watch({"127.0.0.1:1": "abacus"})
        await record.end(server.address, len(record.ends(server.address)) + 2)


async def test_an_empty_set_is_watched_in_peace() -> None:
    async with scraping({}) as (scraper, record), serving(LLAMACPP) as server:
        await asyncio.sleep(0.01)
        scraper.watch({server.address: "llamacpp"})
        await record.end(server.address)


async def test_a_scraper_that_was_stopped_can_be_run_again() -> None:
    record = Record()
    async with serving(LLAMACPP) as server:
        scraper = Scraper(Scrape(interval_seconds=0.05), record.emit, random.Random(7))
        scraper.watch({server.address: "llamacpp"})
        for number in (1, 2):
            running = asyncio.create_task(scraper.run())
            await record.end(server.address, number)
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
        count = len(record.events)
        await asyncio.sleep(0.1)
        assert len(record.events) == count
