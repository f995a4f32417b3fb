"""Calls that may never return."""

import asyncio
import threading

import pytest

from tidegate.agent.lane import Hung, Lane


@pytest.fixture
def release() -> "threading.Event":
    return threading.Event()


async def test_a_call_gives_what_it_returns_and_raises_what_it_raises() -> None:
    lane = Lane("test", 5.0)
    assert await lane.call(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await lane.call(divmod, 7, 0)
    assert await lane.call(threading.get_ident) != threading.get_ident()
    lane.close()


async def test_a_timeout_that_the_call_itself_raises_is_no_hung_call() -> None:
    def times_out() -> None:
        raise TimeoutError("mine")

    lane = Lane("test", 5.0)
    with pytest.raises(TimeoutError, match="mine"):
        await lane.call(times_out)
    assert lane.hung == 0
    lane.close()


async def test_a_call_that_hangs_is_abandoned_and_the_next_one_gets_a_new_thread(release: threading.Event) -> None:
    lane = Lane("test", 0.05)
    with pytest.raises(Hung, match=r"within 0\.05 s"):
        await lane.call(release.wait)
    assert await lane.call(int, "7") == 7
    assert lane.hung == 1
    release.set()
    lane.close()


async def test_no_more_threads_are_lost_than_the_lane_may_lose(release: threading.Event) -> None:
    lane = Lane("a lane that hangs", 0.05, max_hung=2)
    for _ in range(6):
        with pytest.raises(Hung):
            await lane.call(release.wait)
    assert [thread.name for thread in threading.enumerate()].count("a lane that hangs") == lane.hung == 2
    release.set()


async def test_a_lane_works_again_once_a_hung_call_came_back(release: threading.Event) -> None:
    lane = Lane("test", 0.05, max_hung=1)
    with pytest.raises(Hung):
        await lane.call(release.wait)
    with pytest.raises(Hung, match="1 calls hang"):
        await lane.call(int)
    release.set()
    async with asyncio.timeout(10):
        while lane.hung:  # noqa: ASYNC110 - a thread ends, of which nothing tells
            await asyncio.sleep(0.01)
    assert await lane.call(int, "7") == 7
    lane.close()


async def test_grace_is_added_to_the_deadline() -> None:
    lane = Lane("test", 0.05)
    assert await lane.call(threading.Event().wait, 0.2, grace=5.0) is False
    lane.close()


async def test_a_closed_lane_lets_its_thread_end() -> None:
    lane = Lane("a lane to close", 5.0)
    await lane.call(int)
    thread = next(thread for thread in threading.enumerate() if thread.name == "a lane to close")
    lane.close()
    thread.join(10)
    assert not thread.is_alive()
