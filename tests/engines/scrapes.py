"""A scraper at work, and a record of what it says."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from tests.engines import pages
from tests.engines.engine_server import answering
from tidegate.config_sections import Scrape
from tidegate.engines.scraper import Scraper
from tidegate.fleet.events import FleetEvent, ScrapeStarted
from tidegate.fleet.load import EngineReport

LLAMACPP = answering(pages.LLAMACPP, "Content-Type: text/plain; version=0.0.4")
LLAMACPP_REPORT = EngineReport(running=4, waiting=6, prompt_tokens_total=1253, generation_tokens_total=18)


def logged(entry: logging.LogRecord) -> dict[str, str]:
    """Return a log line as a reader of JSON has it."""
    return {"msg": entry.getMessage(), **vars(entry)["fields"]}


class Record:
    """Takes events and observations, and lets a test wait for them."""

    def __init__(self) -> None:
        self.events: list[FleetEvent] = []
        self.outcomes: list[tuple[str, str]] = []
        self.seconds: list[float] = []
        self._news = asyncio.Event()

    def emit(self, event: FleetEvent) -> None:
        self.events.append(event)
        self._news.set()

    def observe(self, address: str, outcome: str, seconds: float) -> None:
        self.outcomes.append((address, outcome))
        self.seconds.append(seconds)
        self._news.set()

    def of(self, address: str) -> list[FleetEvent]:
        return [event for event in self.events if getattr(event, "address", None) == address]

    def ends(self, address: str) -> list[FleetEvent]:
        return [event for event in self.of(address) if not isinstance(event, ScrapeStarted)]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def end(self, address: str, number: int = 1) -> FleetEvent:
        """Wait for ``number`` scrapes of ``address`` to end; return the event of the last one."""
        await self.until(lambda: len(self.ends(address)) >= number)
        return self.ends(address)[number - 1]


@asynccontextmanager
async def scraping(
    targets: Mapping[str, str], *, interval: float = 0.05, seconds: float = 5.0, max_bytes: int = 100_000
) -> AsyncIterator[tuple[Scraper, Record]]:
    record = Record()
    settings = Scrape(interval_seconds=interval, timeout_seconds=seconds, max_bytes=max_bytes)
    scraper = Scraper(settings, record.emit, random.Random(7), record.observe)
    scraper.watch(targets)
    running = asyncio.create_task(scraper.run())
    try:
        yield scraper, record
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
