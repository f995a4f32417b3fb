"""The check ``progress``: something has to move while requests are there."""

import pytest

from tests.engines.checks.asked import ask, check
from tidegate.engines.check import Finding, Standing

STILL = Standing(inflight=3, still_seconds=31.0, counted=True)


@pytest.mark.parametrize(
    ("standing", "finding"),
    [
        (STILL, Finding.FAILED),
        (STILL._replace(inflight=0, still_seconds=0.0), Finding.SKIPPED),
        (STILL._replace(still_seconds=3.0, moved=True), Finding.PASSED),
        (STILL._replace(still_seconds=20.0), Finding.UNKNOWN),
        (STILL._replace(counted=False), Finding.UNKNOWN),
        (STILL._replace(prefill_seconds=5.0), Finding.UNKNOWN),
        (STILL._replace(prefill_seconds=0.5), Finding.FAILED),
    ],
)
async def test_only_requests_that_the_engine_does_not_move_fail(standing: Standing, finding: Finding) -> None:
    found = await ask(check(name="progress"), "10.0.0.1:1", standing=standing)
    assert found.finding is finding
    assert (found.reason == "no_progress") is (finding is Finding.FAILED)


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (Standing(inflight=1, still_seconds=5.0), "nothing_heard"),
        (Standing(inflight=1, still_seconds=5.0, moved=True, since_moved=5.0), "nothing_heard"),
        (Standing(inflight=1, still_seconds=4.9, moved=True, since_moved=4.9), ""),
        (Standing(inflight=1, still_seconds=4.9), "uncounted"),
        (Standing(inflight=1, still_seconds=8.0, prefill_seconds=4.0), "uncounted"),
        (Standing(inflight=1, still_seconds=20.0, counted=True), "waiting"),
        (Standing(inflight=0, still_seconds=0.0), "idle"),
    ],
)
async def test_silence_is_no_failure_but_worth_a_question(standing: Standing, reason: str) -> None:
    found = await ask(check(name="progress"), "10.0.0.1:1", standing=standing)
    assert found.reason == reason
    assert found.finding is not Finding.FAILED


async def test_how_long_nothing_may_move_can_be_said() -> None:
    found = await ask(check(name="progress", still_seconds=60), "10.0.0.1:1", standing=STILL)
    assert found.finding is Finding.UNKNOWN
