"""The account of one endpoint, and what ended requests teach of its speed."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.declare import A, B, C, fleet_of, pool, reservation, seen
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import (
    EvidenceReported,
    LoadReported,
    RequestEnded,
    RequestReserved,
    ScrapeFailed,
    ScrapeStarted,
    TimePassed,
)
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.gpu import Pace, prior
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet

PRIOR = prior("a100")
TIMES = st.none() | st.floats()


def run(fleet: Fleet, name: str, at: float, end: float, *, prompt: int = 4000, **outcome: Any) -> None:
    """Send a request at ``at`` that ends at ``end``, both in seconds."""
    fleet.apply(RequestReserved(reservation(name, prompt=prompt)), at)
    fleet.apply(RequestEnded(name, **outcome), end)


def served(pace: Pace, *, prompt: int = 4000, output: int = 200, times: int = 60, fleet: Fleet | None = None) -> Fleet:
    """Return a fleet whose endpoint A served ``times`` requests, one after the other, at the speed of ``pace``."""
    fleet, now = fleet or fleet_of(pool(A)), 0.0
    for number in range(times):
        alone = pace.step(1, prompt + 25)
        ttft = prompt * pace.prompt_token(pace.step_seconds) + 1.5 * pace.step_seconds
        duration = ttft + (output - 1) * alone
        run(
            *(fleet, f"{times} {number}", now, now + duration),
            prompt=prompt,
            output_tokens=output,
            ttft=ttft,
            duration=duration,
        )
        now += duration + 1.0
    return fleet


def learned(fleet: Fleet) -> Pace:
    return seen(fleet, A, 1e9).pace


def test_an_endpoint_starts_at_the_prior_of_its_gpu() -> None:
    members = (EndpointSpec(A, gpu="h100"), EndpointSpec("10.0.0.9:1"))
    views = fleet_of(PoolSpec("default", "vllm", ("*",), members)).view("default", 0.0).endpoints
    assert [endpoint.pace for endpoint in views] == [prior("h100"), PRIOR]


@pytest.mark.parametrize("gpu", ["rtx4090", "h100", "l4"])
def test_what_it_is_shows_in_how_long_it_takes(gpu: str) -> None:
    pace = learned(served(prior(gpu)))
    assert pace.prefill_seconds == pytest.approx(prior(gpu).prefill_seconds, rel=0.15)
    assert pace.step(10, 20_000) == pytest.approx(prior(gpu).step(10, 20_000), rel=0.15)


def test_a_failing_fast_endpoint_does_not_look_fast() -> None:
    fleet = fleet_of(pool(A))
    for number in range(50):
        run(fleet, str(number), number, number + 0.01, ttft=0.001, duration=0.01, output_tokens=500, failed=True)
    assert seen(fleet, A, 50.0).failing > 0.8
    assert learned(fleet) == PRIOR


def test_failures_fade_with_time_and_with_success() -> None:
    fleet = fleet_of(pool(A))
    for number in range(20):
        run(fleet, str(number), 0.0, 0.0, failed=True)
    at_once = seen(fleet, A, 0.0).failing
    assert 0 < seen(fleet, A, 60.0).failing < at_once / 5
    run(fleet, "good", 0.0, 1.0, ttft=0.5, output_tokens=10, duration=1.0)
    assert seen(fleet, A, 1.0).failing < at_once


def test_a_client_that_left_says_nothing_for_or_against() -> None:
    fleet = fleet_of(pool(A))
    run(fleet, "bad", 0.0, 0.0, failed=True)
    before = seen(fleet, A, 5.0)
    run(fleet, "left", 5.0, 5.0)
    after = seen(fleet, A, 5.0)
    assert (after.failing, after.pace) == (before.failing, before.pace)


def test_what_was_sent_counts_as_not_prefilled_until_it_could_be() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1", prompt=10_000)), 0.0)
    fleet.apply(RequestReserved(reservation("r2", prompt=5_000)), 0.0)
    backlog = [seen(fleet, A, now).backlog for now in (0.0, 0.5, 1.0, 10.0)]
    assert backlog[0] == 15_000
    assert backlog == sorted(backlog, reverse=True)
    assert backlog[1] == pytest.approx(15_000 - 0.5 / PRIOR.prompt_token(PRIOR.step_seconds), rel=0.02)
    assert backlog[-1] == 0.0


def test_cached_prompt_tokens_are_no_work() -> None:
    fleet = fleet_of(pool(A))
    made = reservation("r1", prompt=10_000)
    fleet.apply(RequestReserved(type(made)("r2", "default", A, 10_000, 5, 0.0, uncached_tokens=0)), 0.0)
    assert seen(fleet, A, 0.0).backlog == 0.0


def test_prefill_takes_a_share_of_its_time() -> None:
    fleet = fleet_of(pool(A))
    assert seen(fleet, A, 0.0).busy == 0.0
    for number in range(100):
        fleet.apply(RequestReserved(reservation(str(number), prompt=4849)), number)
    half_of_it = seen(fleet, A, 99.0).busy
    assert half_of_it == pytest.approx(0.5, abs=0.05)
    assert seen(fleet, A, 160.0).busy < 0.1 * half_of_it


def test_a_cached_prompt_does_not_make_prefill_look_fast() -> None:
    fleet = fleet_of(pool(A))
    for number in range(30):
        at = 10.0 * number
        run(fleet, str(number), at, at + 1, prompt=8000, ttft=0.03, duration=1.0, output_tokens=60, cached_tokens=8000)
    assert learned(fleet).prefill_seconds == pytest.approx(PRIOR.prefill_seconds)


def test_a_crowded_endpoints_wait_does_not_make_prefill_look_slow() -> None:
    fleet = fleet_of(pool(A))
    full = int(PRIOR.kv_tokens)
    fleet.apply(RequestReserved(reservation("fills it", prompt=full)), 0.0)
    run(fleet, "waits", 100.0, 160.0, ttft=50.0, duration=60.0, output_tokens=2)
    assert learned(fleet).prefill_seconds == PRIOR.prefill_seconds


def test_a_busier_batch_does_not_make_decoding_look_slow() -> None:
    fleet = fleet_of(pool(A))
    for number in range(100):
        fleet.apply(RequestReserved(reservation(f"other {number}", prompt=1000)), 0.0)
    slower = PRIOR.step(101, 100 * 1025 + 4025)
    assert slower > 1.5 * PRIOR.step_seconds
    for number in range(30):
        at = 100.0 + 100 * number
        end = at + 0.5 + 199 * slower
        run(fleet, str(number), at, end, ttft=0.5, duration=end - at, output_tokens=200)
    assert learned(fleet).step_seconds == pytest.approx(PRIOR.step_seconds, rel=0.05)


def test_an_answer_that_is_not_streamed_teaches_decoding_all_the_same() -> None:
    fleet, now = fleet_of(pool(A)), 0.0
    for number in range(60):
        duration = 4000 * PRIOR.prefill_seconds + 200 * 3 * PRIOR.step_seconds
        run(fleet, str(number), now, now + duration, duration=duration, output_tokens=200)
        now += duration + 1
    assert learned(fleet).step_seconds == pytest.approx(3 * PRIOR.step_seconds, rel=0.1)


def reported(fleet: Fleet, tokens: float, now: float) -> None:
    fleet.apply(LoadReported(A, EngineReport(0.0, 0.0, 0.1, 30_000.0, tokens, tokens)), now)


def test_a_restarted_engine_is_believed_less() -> None:
    fleet = served(prior("l4"))
    reported(fleet, 1e6, 1e6)
    before = learned(fleet).step_seconds
    reported(fleet, 2e6, 1e6 + 1)
    assert learned(fleet).step_seconds == before
    fleet.apply(RequestReserved(reservation("lost", prompt=10**6)), 1e6 + 1)
    reported(fleet, 100.0, 1e6 + 2)
    assert PRIOR.step_seconds < learned(fleet).step_seconds < before
    assert seen(fleet, A, 1e6 + 2).backlog == 0.0
    run(fleet, "fast now", 2e6, 2e6 + 1, ttft=0.1, duration=1.0, output_tokens=100)
    assert learned(fleet).step_seconds < before / 2


def waiting(fleet: Fleet, requests: float, asked: float, now: float) -> float:
    """Let A say that so many requests waited when it was asked; return what is then reckoned to wait, in tokens."""
    fleet.apply(ScrapeStarted(A), asked)
    fleet.apply(LoadReported(A, EngineReport(1.0, requests, 0.1, 424_000.0)), now)
    return seen(fleet, A, now).backlog


def test_an_engine_that_says_how_many_wait_corrects_what_was_reckoned() -> None:
    fleet = fleet_of(pool(A))
    for number in range(40):
        fleet.apply(RequestReserved(reservation(str(number), prompt=1000)), 0.0)
    assert seen(fleet, A, 3.9).backlog < 6_000
    assert waiting(fleet, 30.0, 3.9, 3.9) == 30_000
    assert waiting(fleet, 30.0, 3.9, 4.9) == pytest.approx(30_000 - 1 / PRIOR.prompt_token(0.012), rel=0.1)
    assert waiting(fleet, 0.0, 4.9, 4.9) <= 1_000 + PRIOR.step_tokens


def test_what_was_sent_since_it_was_asked_counts_besides() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1", prompt=1000)), 0.0)
    fleet.apply(ScrapeStarted(A), 100.0)
    fleet.apply(RequestReserved(reservation("r2", prompt=50_000)), 100.0)
    fleet.apply(LoadReported(A, EngineReport(0.0, 0.0, 0.0, 424_000.0)), 100.0)
    assert seen(fleet, A, 100.0).backlog == 50_000


def test_those_that_wait_for_room_are_no_prompts_to_be_worked_off() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("fills it", prompt=int(PRIOR.kv_tokens))), 0.0)
    assert waiting(fleet, 9.0, 900.0, 900.0) == 0.0


def test_its_cache_is_as_large_as_it_says() -> None:
    fleet = fleet_of(pool(A))
    reported(fleet, 1.0, 0.0)
    assert learned(fleet).kv_tokens == 30_000.0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**7),
            st.none() | st.integers(0, 10**7),
            TIMES,
            TIMES,
            st.none() | st.integers(0, 10**7),
            st.booleans(),
            st.floats(0.0, 1e5),
        ),
        max_size=30,
    )
)
def test_whatever_is_observed_every_figure_is_a_number(ends: list[tuple[Any, ...]]) -> None:
    fleet, now = fleet_of(pool(A)), 0.0
    for number, (prompt, output, ttft, duration, cached, failed, pause) in enumerate(ends):
        now += pause
        fleet.apply(RequestReserved(reservation(str(number), prompt=prompt)), now)
        fleet.apply(
            RequestEnded(
                *(str(number - number % 3), output, ttft, duration, cached),
                failed=failed,
            ),
            now,
        )
        endpoint = seen(fleet, A, now)
        assert all(0 < figure < math.inf for figure in endpoint.pace)
        assert 0 <= endpoint.failing <= 1
        assert 0 <= endpoint.busy <= 1
        assert 0 <= endpoint.backlog < math.inf
        assert 0 <= endpoint.context < math.inf


FROZEN = Evidence("progress", Verdict.FAILED, ("no_progress",))
SLOW: dict[str, Any] = {"ttft": 4.0, "duration": 50.0, "output_tokens": 200}


def equals() -> Fleet:
    """Return a fleet of three equal endpoints, of which A served some requests."""
    return served(PRIOR, times=3, fleet=fleet_of(pool(A, B, C)))


def test_what_was_there_while_it_was_ejected_teaches_nothing_of_its_speed() -> None:
    fleet, now = equals(), 1000.0
    before = fleet.view("default", now).endpoints[0].pace
    for number in range(6):
        fleet.apply(RequestReserved(reservation(f"stuck {number}", prompt=4000)), now)
    fleet.apply(EvidenceReported(A, FROZEN), now + 10.0)
    assert seen(fleet, A, now + 10.0).ejected
    fleet.apply(RequestEnded("stuck 0", failed=True), now + 11.0)
    assert seen(fleet, A, now + 11.0).failing > 0.1
    fleet.apply(EvidenceReported(A, Evidence("progress", Verdict.SOUND)), now + 50.0)
    for second in range(51, 90):
        fleet.apply(TimePassed(), now + second)
    back = seen(fleet, A, now + 90.0)
    assert (back.ejected, back.failing) == (False, 0.0)
    for number in range(1, 6):
        fleet.apply(RequestEnded(f"stuck {number}", **SLOW), now + 90.0 + number)
    assert {seen(fleet, one, now + 100.0).pace for one in (A, B, C)} == {before}
    outlook = fleet.outlook(A, now + 100.0)
    assert outlook is not None
    assert outlook.samples == (0.0, 0.0)


def test_what_was_there_while_its_engine_said_nothing_teaches_nothing_either() -> None:
    for silent in (False, True):
        fleet, now = equals(), 1000.0
        before = seen(fleet, A, now).pace
        fleet.apply(LoadReported(A, EngineReport(1.0, 0.0, 0.1)), now)
        for number in range(6):
            fleet.apply(RequestReserved(reservation(f"stuck {number}", prompt=4000)), now + 1.0)
        if silent:
            fleet.apply(ScrapeFailed(A, unreachable=False, reason="timeout"), now + 20.0)
        for number in range(6):
            fleet.apply(RequestEnded(f"stuck {number}", **SLOW), now + 51.0)
        assert (seen(fleet, A, now + 52.0).pace == before) is silent


def test_one_that_is_thought_slow_is_tried_as_if_it_were_well_by_one_request_after_a_time_and_many_elsewhere() -> None:
    fleet = equals()
    for number in range(10):
        at = 1000.0 + 60.0 * number
        run(fleet, f"slow {number}", at, at + 50.0, **SLOW)
    for number in range(10):
        start, at = reservation(f"well {number}", address=B, prompt=4000), 1400.0 + number
        fleet.apply(RequestReserved(start), at)
        fleet.apply(RequestEnded(start.id, ttft=0.5, duration=2.5, output_tokens=200), at + 2.5)
    slow, well = (seen(fleet, one, 1590.0).pace for one in (A, B))
    assert slow.step_seconds > 2 * well.step_seconds
    assert seen(fleet, A, 1590.5).pace == slow
    for number in range(250):
        fleet.apply(RequestReserved(reservation(f"elsewhere {number}", address=B, prompt=10)), 1591.0)
    assert seen(fleet, A, 1599.0).pace == slow
    hoped = seen(fleet, A, 1700.0).pace
    assert hoped.step_seconds <= well.step_seconds
    fleet.apply(RequestReserved(reservation("tried", prompt=4000)), 1700.0)
    assert seen(fleet, A, 1700.0).pace == slow
