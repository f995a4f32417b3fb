"""The counter always answers, in bounded time, and never blocks the event loop with much."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio

from tests.tokens.corpus import PATHOLOGICAL
from tidegate.tokens import vocabulary
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.counter import Shortfall, TokenCounter
from tidegate.tokens.slicing import LIMIT, utf8_length

EXACT, SAMPLED, BYTES = CountSource.EXACT, CountSource.SAMPLED, CountSource.BYTES
LONG = "word " * 20_000


class Panic(BaseException):
    """What a crash in native code looks like: no ``Exception``."""


@contextmanager
def counter(count: Callable[[str], int], **arguments: object) -> Iterator[TokenCounter]:
    # No deadline unless a test sets one, so that a busy machine changes no outcome.
    patient = {"threads": 1, "deadline": float("inf"), "patience": 60.0}
    made = TokenCounter(load=lambda _: count, **(patient | arguments))  # type: ignore[arg-type]
    made.warm()
    try:
        yield made
    finally:
        made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real() -> AsyncIterator[TokenCounter]:
    made = TokenCounter(deadline=float("inf"), patience=60, threads=2)
    made.warm()
    yield made
    made.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("model", "tokens"), [("gpt-4o", 8), ("gpt-4", 9), ("Qwen/Qwen3-8B", 8), ("", 8)])
async def test_a_model_is_counted_with_its_own_vocabulary(real: TokenCounter, model: str, tokens: int) -> None:
    assert await real.count(model, ["お誕生日おめでとう"]) == TokenCount(tokens, EXACT)


@pytest.mark.asyncio(loop_scope="module")
async def test_texts_are_counted_apart_and_added_up(real: TokenCounter) -> None:
    assert await real.count("gpt-4o", ["hello", "", " world"]) == TokenCount(2, EXACT)
    assert await real.count("gpt-4o", []) == TokenCount(0, EXACT)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PATHOLOGICAL)
async def test_a_pathological_text_is_counted_and_costs_no_error(real: TokenCounter, name: str) -> None:
    text = PATHOLOGICAL[name]
    failed = real.stats.shortfalls[Shortfall.FAILED]
    count = await real.count("gpt-4o", [text])
    assert 1 <= count.tokens <= utf8_length(text)
    assert count.source is not BYTES
    assert real.stats.shortfalls[Shortfall.FAILED] == failed


async def test_small_questions_are_answered_at_once_and_large_ones_never_on_the_event_loop() -> None:
    threads: dict[str, int] = {}

    def count(text: str) -> int:
        threads[text] = threading.get_ident()
        return 1

    loop = threading.get_ident()
    with counter(count) as made:
        await made.count("m", ["a" * 8_000])
        await made.count("m", ["b" * 9_000])
        await made.count("m", ["ж" * 5_000])
        await made.count("m", ["d" * 30] * 500)
        await made.count("m", ["e" * 5_000_000])
        await made.count("m", [f"f{at} " * 10_000 for at in range(20)])
    assert threads.pop("a" * 8_000) == loop
    assert len(threads) > 10
    assert loop not in threads.values()


async def test_the_event_loop_goes_on_while_a_thread_counts() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def count(text: str) -> int:
        if len(text) > 9_000:
            begun.set()
            assert go_on.wait(30)
        return 1

    with counter(count) as made:
        task = asyncio.create_task(made.count("m", [LONG]))
        assert await asyncio.to_thread(begun.wait, 30)
        assert await made.count("m", ["short"]) == TokenCount(1, EXACT)
        assert not task.done()
        go_on.set()
        assert (await task).source is EXACT


async def test_at_the_deadline_the_rest_is_sampled() -> None:
    now = [100.0]
    sizes: list[int] = []

    def count(text: str) -> int:
        now[0] += 0.005
        sizes.append(len(text))
        return len(text)

    with counter(count, deadline=0.02, clock=lambda: now[0], rng=random.Random(1)) as made:
        sizes.clear()
        count_ = await made.count("m", ["a" * 500_000])
    assert count_.source is SAMPLED
    assert count_.tokens == pytest.approx(500_000, rel=0.01)
    assert sizes[:4] == [LIMIT] * 4
    assert sum(sizes[4:]) <= 140_000


async def test_history_is_not_counted_twice() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    history = [f"message {at} " * 200 for at in range(40)]
    with counter(count) as made:
        first = await made.count("m", history)
        asked.clear()
        second = await made.count("m", [*history, "and a new question, which is longer than a few words"])
    assert second == TokenCount(first.tokens + 52, EXACT)
    assert asked == ["and a new question, which is longer than a few words"]


async def test_a_text_remembered_for_one_vocabulary_is_not_taken_for_another() -> None:
    with counter(len) as made:
        made._tokenizers["cl100k_base"] = made._tokenizers["o200k_base"]._replace(name="cl100k_base", count=lambda _: 1)
        assert (await made.count("gpt-4o", ["x" * 100])).tokens == 100
        assert (await made.count("gpt-4", ["x" * 100])).tokens == 1


@pytest.mark.parametrize(
    "error", [Panic("native"), ValueError("regex"), MemoryError(), StopIteration(), RecursionError()]
)
@pytest.mark.parametrize("text", ["short", LONG], ids=["inline", "in a thread"])
async def test_an_error_of_the_tokenizer_costs_only_the_exactness(error: BaseException, text: str) -> None:
    broken = False

    def count(piece: str) -> int:
        if broken:
            raise error
        return len(piece)

    with counter(count) as made:
        broken = True
        assert await made.count("m", [text]) == TokenCount(-(-len(text) // 4), BYTES)
        assert made.stats.shortfalls[Shortfall.FAILED] == 1
        broken = False
        assert await made.count("m", [text]) == TokenCount(len(text), EXACT), "the thread lives"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("text", ["short", LONG], ids=["inline", "in a thread"])
async def test_what_is_meant_to_end_the_program_or_the_task_passes(error: type[BaseException], text: str) -> None:
    broken = False

    def count(piece: str) -> int:
        if broken:
            raise error
        return len(piece)

    with counter(count) as made:
        broken = True
        with pytest.raises(error):
            await made.count("m", [text])


async def test_a_tokenizer_that_hangs_costs_only_the_exactness() -> None:
    released = threading.Event()

    def count(text: str) -> int:
        if len(text) > 9_000:
            released.wait(30)
        return len(text)

    with counter(count, patience=0.05) as made:
        assert await made.count("m", [LONG]) == TokenCount(len(LONG) // 4, BYTES)
        assert made.stats.shortfalls[Shortfall.OVERDUE] == 1
        released.set()


async def test_with_no_thread_free_and_enough_waiting_the_bytes_have_to_do() -> None:
    released = threading.Event()

    def count(text: str) -> int:
        if len(text) > 9_000:
            released.wait(30)
        return len(text)

    with counter(count, waiting=2) as made:
        tasks = [asyncio.create_task(made.count("m", [f"{at}{LONG}"])) for at in range(5)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert {(await task).source for task in done} == {BYTES}
        released.set()
        sources = [(await task).source for task in tasks]
        assert sources == [EXACT, EXACT, EXACT, BYTES, BYTES]
        assert made.stats.shortfalls[Shortfall.SATURATED] == 2
        assert (await made.count("m", [f"again {LONG}"])).source is EXACT, "the places are free again"


async def test_questions_that_were_given_up_occupy_their_places_until_they_are_gone() -> None:
    begun, released = threading.Event(), threading.Event()
    asked: list[str] = []

    def count(text: str) -> int:
        if len(text) > 9_000:
            asked.append(text[:1])
            begun.set()
            released.wait(30)
        return len(text)

    with counter(count, waiting=2) as made:
        tasks = [asyncio.create_task(made.count("m", [f"{at}{LONG}"])) for at in range(3)]
        assert await asyncio.to_thread(begun.wait, 30)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert (await made.count("m", [LONG])).source is BYTES
        released.set()
        # The one thread takes what is submitted in turn: after this the others are gone.
        await asyncio.to_thread(made._executor.submit(bool).result, 30)
        assert (await made.count("m", [LONG])).source is EXACT
    assert not {"1", "2"} & set(asked), "nobody waits for them, so they are not counted"


async def test_a_counter_that_is_cold_or_closed_answers_from_the_bytes() -> None:
    made = TokenCounter(load=lambda _: len, threads=1)
    assert await made.count("m", ["four bytes to a token"]) == TokenCount(6, BYTES)
    made.warm()
    made.close()
    assert (await made.count("m", [LONG])).source is BYTES
    assert made.stats.shortfalls[Shortfall.COLD] == 2


async def test_closing_answers_those_who_wait() -> None:
    begun, released = threading.Event(), threading.Event()

    def count(text: str) -> int:
        if len(text) > 9_000:
            begun.set()
            released.wait(30)
        return len(text)

    with counter(count) as made:
        tasks = [asyncio.create_task(made.count("m", [f"{at}{LONG}"])) for at in range(3)]
        assert await asyncio.to_thread(begun.wait, 30)
        closing = asyncio.create_task(asyncio.to_thread(made.close))
        assert (await tasks[2]).source is BYTES
        released.set()
        await closing
        assert [(await task).source for task in tasks] == [EXACT, BYTES, BYTES]


async def test_every_answer_is_counted_by_its_source() -> None:
    with counter(len) as made:
        await made.count("m", ["short"])
        await made.count("m", [LONG])
        await made.count("m", ["a" * 2_000_000])
        assert made.stats.counts == {EXACT: 2, SAMPLED: 1, BYTES: 0}
        assert set(made.stats.shortfalls.values()) == {0}


def test_warming_lets_every_thread_encode_with_every_vocabulary() -> None:
    seen: set[tuple[str, int]] = set()
    made = TokenCounter(
        load=lambda name: lambda text: seen.add((name, threading.get_ident())) or len(text),  # type: ignore[func-returns-value]
        threads=3,
    )
    made.warm()
    made.close()
    assert len(seen) == 3 * len(vocabulary.HASHES)


def test_a_missing_vocabulary_is_told_when_warming() -> None:
    def load(_name: str) -> Callable[[str], int]:
        raise vocabulary.VocabularyError("install it")

    made = TokenCounter(load=load)
    with pytest.raises(vocabulary.VocabularyError, match="install it"):
        made.warm()
    made.close()
