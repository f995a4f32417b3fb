"""What Redis is asked and answers, as text."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sharing import names, operations
from tidegate.sharing.deadline import within
from tidegate.sharing.errors import LinkError
from tidegate.sharing.names import Names
from tidegate.sharing.operations import ReplyError

TEXTS = st.text(max_size=50)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_names_differ_where_what_they_stand_for_does(scope: str, limit: str, other: str, another: str) -> None:
    made = Names("salt")
    assert (made.account(scope, limit) == made.account(other, another)) == ((scope, limit) == (other, another))
    assert len(made.account(scope, limit)) == len(made.request(scope)) == 32


def test_parts_of_names_do_not_run_into_each_other() -> None:
    made = Names("salt")
    assert made.account("a", "b:c") != made.account("a:b", "c")
    assert made.account("a", "b") != Names("other").account("a", "b")


def test_names_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MOST_REMEMBERED", 3)
    made = Names("salt")
    assert len({made.account(str(number), "x") for number in range(10)}) == 10


def test_keys_share_a_slot_of_a_cluster() -> None:
    assert all(key.startswith("{fleet}:") for key in names.keys("fleet"))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"OK",
        [],
        [b"ok"],
        [b"ok", b"e", b"x", b"1", b"1", b"1"],
        [b"ok", b"e", b"1", b"1", b"many", b"1"],
        [b"\xff"] * 6,
    ],
)
def test_what_is_no_answer_of_the_script_is_said_to_be_none(answer: object) -> None:
    with pytest.raises(ReplyError):
        operations.parse(answer, 0)


def test_results_that_are_none_are_said_to_be_none() -> None:
    with pytest.raises(ReplyError):
        operations.reserved("1 a")
    with pytest.raises(ReplyError):
        operations.looked("a")
    assert operations.reserved("0") == (False, [])


async def test_what_takes_too_long_is_ended() -> None:
    ended = asyncio.Event()

    async def stuck() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(LinkError, match="no answer within 10 ms") as caught:
        await within(0.01, stuck())
    assert caught.value.reason == "timeout"
    assert ended.is_set()


async def test_what_came_while_nobody_looked_counts() -> None:
    answer = asyncio.get_running_loop().create_future()

    async def waits() -> str:
        return str(await answer)

    def busy() -> None:
        # As a thread that holds the interpreter: the answer comes in time, and the deadline passes, in one turn.
        asyncio.get_running_loop().call_soon(answer.set_result, "here")

    asyncio.get_running_loop().call_later(0.01, busy)
    assert await within(0.01, waits()) == "here"
