"""What a source tells, kept to be looked at, and a source that is run for a while."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from tidegate.discovery.contract import Failed, Found, News, Removed, Reset, Source, Upserted
from tidegate.fleet.endpoint import EndpointSpec


def found(address: str, weight: int = 1) -> Found:
    return Found(EndpointSpec(address, weight))


class Told:
    """What was told, in its order, and what follows from it."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.asked = asyncio.Event()

    @property
    def known(self) -> dict[str, Found]:
        """What there is by key, after all that was told."""
        known: dict[str, Found] = {}
        for news in self.news:
            match news:
                case Reset(all_there_is):
                    known = dict(all_there_is)
                case Upserted(key, one):
                    known[key] = one
                case Removed(key):
                    known.pop(key, None)
        return known

    @property
    def addresses(self) -> set[str]:
        return {one.endpoint.address for one in self.known.values()}

    @property
    def failures(self) -> list[str]:
        return [news.reason for news in self.news if isinstance(news, Failed)]

    @property
    def passes(self) -> int:
        return sum(isinstance(news, Reset) for news in self.news)

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def telling(source: Source) -> AsyncIterator[Told]:
    """Run ``source`` as long as the block."""
    told = Told()
    task = asyncio.create_task(source.run(told.news.append, told.asked))
    try:
        yield told
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
