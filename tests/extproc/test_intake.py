import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from extproc.apis.completions import parse
from extproc.body import ParsedBody
from extproc.content_encoding import CODINGS
from extproc.density import UNCHECKED_BYTES
from extproc.errors import ApiError
from extproc.intake import Intake
from tests.extproc.compressed import COMPRESS

SMALL = b'{"model": "m", "prompt": "hello"}'
LARGE = json.dumps({"model": "m", "prompt": "hello " * 100_000}).encode()


@pytest.fixture
def intake() -> Iterator[Intake]:
    intake = Intake()
    yield intake
    intake.close()


class Held:
    """A parser that holds its thread until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.threads: list[str] = []
        self.begun = threading.Event()

    def __call__(self, body: bytes) -> ParsedBody:
        self.threads.append(threading.current_thread().name)
        self.begun.set()
        assert self.go.wait(10)
        return parse(body)


def _where(body: bytes) -> ParsedBody:
    return ParsedBody(threading.current_thread().name, ())


async def test_a_small_body_is_read_at_once(intake: Intake) -> None:
    here = threading.current_thread().name

    assert (await intake.read(_where, SMALL, None)).model == here
    assert (await intake.read(_where, b"x" * UNCHECKED_BYTES, None)).model == here


async def test_a_large_or_compressed_body_is_read_in_a_thread(intake: Intake) -> None:
    assert (await intake.read(_where, b"x" * (UNCHECKED_BYTES + 1), None)).model.startswith("bodies")
    assert (await intake.read(_where, COMPRESS["gzip"](SMALL), "gzip")).model.startswith("bodies")


@pytest.mark.parametrize("coding", [None, *CODINGS])
@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
async def test_what_is_read_does_not_depend_on_the_way(intake: Intake, body: bytes, coding: str | None) -> None:
    sent = body if coding is None else COMPRESS[coding](body)

    assert await intake.read(parse, sent, coding) == parse(body)


@pytest.mark.parametrize("body", [b"{}", b"[" * 1_000_000, b" " * 1_000_000])
@pytest.mark.parametrize("coding", [None, *CODINGS])
async def test_a_refusal_comes_through_the_thread(intake: Intake, body: bytes, coding: str | None) -> None:
    with pytest.raises(ApiError) as direct:
        parse(body)
    with pytest.raises(ApiError) as caught:
        await intake.read(parse, body if coding is None else COMPRESS[coding](body), coding)

    assert caught.value.body() == direct.value.body()


async def test_an_empty_body_is_empty_whatever_its_coding_is_said_to_be(intake: Intake) -> None:
    with pytest.raises(ApiError) as caught:
        await intake.read(parse, b"", "gzip")

    assert caught.value.code == "empty_body"


async def test_large_bodies_are_read_one_after_another_and_others_meanwhile(intake: Intake) -> None:
    held = Held()
    reading = [asyncio.create_task(intake.read(held, LARGE, None)) for _ in range(3)]
    assert await asyncio.to_thread(held.begun.wait, 10)

    assert (await intake.read(parse, SMALL, None)).texts == ("hello",)
    assert len(held.threads) == 1
    held.go.set()
    assert [parsed.model for parsed in await asyncio.gather(*reading)] == ["m"] * 3
    assert len(set(held.threads)) == 1


async def _is_busy(intake: Intake, held: Held | None = None) -> None:
    with pytest.raises(ApiError) as caught:
        await intake.read(held or parse, LARGE, None)
    assert (caught.value.status, caught.value.reason) == (503, "overloaded")
    assert caught.value.headers["retry-after"]


async def test_only_so_many_wait_and_a_place_is_free_again_afterwards() -> None:
    intake, held = Intake(waiting=1), Held()
    reading = [asyncio.create_task(intake.read(held, LARGE, None)) for _ in range(2)]
    assert await asyncio.to_thread(held.begun.wait, 10)

    await _is_busy(intake)
    reading[1].cancel()
    await asyncio.wait([reading[1]])
    reading[1] = asyncio.create_task(intake.read(held, LARGE, None))
    held.go.set()
    await asyncio.gather(*reading)
    for _ in range(3):
        assert (await intake.read(parse, LARGE, None)).model == "m"
    intake.close()


async def test_nobody_waits_for_ever() -> None:
    intake, held = Intake(patience=0.01), Held()

    await _is_busy(intake, held)
    held.go.set()
    intake.close()


async def test_a_closed_intake_reads_no_large_bodies(intake: Intake) -> None:
    intake.close()

    await _is_busy(intake)
    assert (await intake.read(parse, SMALL, None)).model == "m"


def test_codings_are_as_configured() -> None:
    assert Intake().coding({"content-encoding": "gzip"}) == "gzip"
    with pytest.raises(ApiError, match="not supported"):
        Intake(decode=False).coding({"content-encoding": "gzip"})
