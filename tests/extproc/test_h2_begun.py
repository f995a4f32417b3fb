"""A coroutine runs to its first wait without a task, and a task goes on from there as if it had begun it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from extproc.h2_begun import Begun, begin


async def noted(notes: list[str], *waits: float) -> None:
    """Note the beginning, each wait that is over, and the end, however it comes."""
    notes.append("began")
    try:
        for seconds in waits:
            await asyncio.sleep(seconds)
            notes.append("waited")
    except asyncio.CancelledError:
        notes.append("cancelled")
        raise
    finally:
        notes.append("ended")


def unfinished(coroutine: Coroutine[Any, Any, None]) -> Begun:
    """Begin ``coroutine``, which is to wait, and return the rest of it."""
    rests: list[Begun] = []
    assert not begin(coroutine, rests.append)
    (rest,) = rests
    return rest


async def test_what_never_waits_has_ended_when_begin_returns() -> None:
    notes: list[str] = []
    rests: list[Begun] = []
    assert begin(noted(notes), rests.append)
    assert (notes, rests) == (["began", "ended"], [])


async def test_what_fails_before_it_waits_fails_there() -> None:
    async def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        begin(fails(), lambda _: None)


@pytest.mark.parametrize("waits", [(0.0,), (0.001,), (0.0, 0.0), (0.001, 0.0, 0.001)])
async def test_a_task_goes_on_where_it_waits(waits: tuple[float, ...]) -> None:
    notes: list[str] = []
    rest = unfinished(noted(notes, *waits))
    assert notes == ["began"]
    await asyncio.get_running_loop().create_task(rest)
    assert notes == ["began", *["waited"] * len(waits), "ended"]


async def test_the_rest_can_be_awaited_as_well() -> None:
    notes: list[str] = []
    await unfinished(noted(notes, 0.0, 0.001))
    assert notes == ["began", "waited", "waited", "ended"]


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_task_that_is_cancelled_ends_it_where_it_waits_even_before_the_first_turn(turns: int) -> None:
    notes: list[str] = []
    task = asyncio.get_running_loop().create_task(unfinished(noted(notes, 60.0)))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes == ["began", "cancelled", "ended"]


async def test_a_timeout_works_after_giving_way() -> None:
    notes: list[str] = []

    async def hurried() -> None:
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            notes.append("late")

    await asyncio.get_running_loop().create_task(unfinished(hurried()))
    assert notes == ["late"]


async def test_closing_the_rest_ends_it_where_it_waits() -> None:
    notes: list[str] = []
    unfinished(noted(notes, 60.0)).close()
    assert notes == ["began", "ended"]
