"""Whether anybody is there, under virtual time."""

import math

import pytest

from tidegate.engines import inquiry
from tidegate.engines.check import PASSED, Finding, Found, Standing, came_to_nothing
from tidegate.engines.inquiry import MISSES, PROBE, inquire
from tidegate.engines.outcome import Outcome, ScrapeError

NO_ANSWER = Found(Finding.TIMED_OUT, "timeout")
NO_CONNECTION = came_to_nothing(ScrapeError(Outcome.UNREACHABLE, "no connection"))


class Engine:
    """One that answers as listed, once a question; in between time passes."""

    def __init__(self, *answers: Found) -> None:
        self.now, self.asked, self.moved_at = 100.0, 0, -math.inf
        self.said: list[Found] = []
        self._answers = answers

    async def ask(self) -> Found:
        self.asked += 1
        found = self._answers[min(self.asked, len(self._answers)) - 1]
        self.now += PROBE.timeout if found.finding is Finding.TIMED_OUT else 0.01
        return found

    def standing(self) -> Standing:
        return Standing(inflight=1, since_moved=self.now - self.moved_at)

    async def inquired(self) -> list[Finding]:
        """Return what was said."""
        await inquire(self.ask, self.standing, self.said.append, lambda: self.now)
        return [found.finding for found in self.said]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("answer", [PASSED, Found(Finding.FAILED, "unreadable"), Found(Finding.FAULT, "fault")])
async def test_any_answer_ends_it_and_is_no_praise(answer: Found) -> None:
    engine = Engine(answer)
    assert (await engine.inquired(), engine.asked) == ([], 1)


async def test_a_few_answers_that_do_not_come_say_nothing() -> None:
    engine = Engine(*[NO_ANSWER] * (MISSES - 1), PASSED)
    assert (await engine.inquired(), engine.asked) == ([], MISSES)


@pytest.mark.parametrize("nobody", [NO_ANSWER, NO_CONNECTION])
async def test_one_that_answers_nothing_is_not_there_until_it_answers(nobody: Found) -> None:
    engine = Engine(*[nobody] * (MISSES + 2), PASSED)
    assert await engine.inquired() == [Finding.FAILED] * 3 + [Finding.PASSED]
    assert engine.said[0].reason == "no_answer"


@pytest.mark.parametrize("asked_before", [0, 1, MISSES])
async def test_one_of_which_something_else_is_heard_meanwhile_is_there(asked_before: int) -> None:
    engine = Engine(NO_ANSWER)

    async def ask() -> Found:
        found = await Engine.ask(engine)
        if engine.asked > asked_before:
            engine.moved_at = engine.now - 1.0  # a request was served while it was asked
        return found

    engine.ask = ask  # type: ignore[method-assign]
    assert await engine.inquired() == ([Finding.FAILED, Finding.PASSED] if asked_before == MISSES else [])
    assert engine.asked == asked_before + 1


async def test_what_was_heard_before_it_was_asked_says_nothing() -> None:
    engine = Engine(*[NO_ANSWER] * MISSES, PASSED)
    engine.moved_at = engine.now - 5.0
    assert await engine.inquired() == [Finding.FAILED, Finding.PASSED]


def test_all_of_it_takes_fifteen_seconds() -> None:
    asking = MISSES * PROBE.timeout + (MISSES - 1) * (PROBE.interval - PROBE.timeout)
    assert inquiry.SILENT_SECONDS + asking <= 15.0
