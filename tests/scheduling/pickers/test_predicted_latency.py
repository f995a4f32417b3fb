"""The policy ``predicted_latency``."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, Draws, ask, candidate, configured, dispatcher
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, RequestEnded, ScrapeStarted
from tidegate.fleet.gpu import prior
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.pickers.predicted_latency import Picker
from tidegate.scheduling.policy import Policy

POLICY = "predicted_latency"


def mixed(rng: Any, **gpus: str) -> tuple[Fleet, Dispatcher]:
    """Return a pool of endpoints A, B, C with these GPUs, given as a, b, c."""
    members = tuple(EndpointSpec({"a": A, "b": B, "c": C}[name], gpu=gpu) for name, gpu in gpus.items())
    return configured(PoolSpec("default", "vllm", ("*",), members), rng=rng, policy=Policy(POLICY))


def pick(decides: Dispatcher, name: str, now: float = 0.0, *, prompt: int = 100, limit: int | None = None) -> str:
    decision = decides.decide(ask(name, prompt=prompt, limit=limit), now)
    assert isinstance(decision, Decision)
    return decision.addresses[0]


def test_the_faster_gpu_is_named_first_without_any_weights() -> None:
    _, decides = mixed(Draws([0.5]), a="rtx4090", b="h100", c="a100")
    decision = decides.decide(ask(), 0.0)
    assert isinstance(decision, Decision)
    assert decision.addresses == (B, C, A)


def test_load_shares_out_by_speed() -> None:
    _, decides = mixed(random.Random(1), a="rtx4090", b="h100", c="a100")
    shares = Counter(pick(decides, str(number), limit=100) for number in range(300))
    assert shares[B] > shares[C] > shares[A] > 10


def test_a_long_prompt_goes_where_it_stalls_nobody() -> None:
    busy = candidate(A, requests=5, tokens=5_000)._replace(pace=prior("h100"), context=4_000)
    slow_and_idle = candidate(B)._replace(pace=prior("a100"))
    first = [
        Picker().rank(ask(prompt=prompt), [busy, slow_and_idle], Draws([0.5]))[0].address for prompt in (10, 30_000)
    ]
    assert first == [A, B]


def test_a_long_prompt_keeps_small_ones_away_until_it_ended() -> None:
    fleet, decides = dispatcher(POLICY, A, B, rng=random.Random(1))
    long = pick(decides, "long", prompt=100_000)
    small = [pick(decides, f"small {number}", prompt=8, limit=8) for number in range(30)]
    assert long not in small
    fleet.apply(RequestEnded("long", 8), 30.0)
    after = [pick(decides, f"later {number}", 30.0, prompt=8, limit=8) for number in range(10)]
    assert long in after


def test_a_cached_prefix_draws_its_request() -> None:
    cached = candidate(A, requests=3, tokens=3000)._replace(context=2000, cached_tokens=8000)
    assert Picker().rank(ask(prompt=8100), [candidate(B), cached], Draws([0.5]))[0].address == A


def test_what_the_order_rests_on_can_be_told() -> None:
    busy = candidate(A, requests=9, tokens=3000)._replace(context=2000, backlog=500.0)
    figures = Picker().explain(ask(prompt=100), [busy, candidate(B)])
    assert set(figures) == {A, B}
    assert set(figures[A]) == {
        "total",
        "wait",
        "prefill",
        "decode",
        "others",
        "later",
        "cache",
        "queue",
        "risk",
        "ttft",
    }
    ranked = Picker().rank(ask(prompt=100), [busy, candidate(B)], Draws([0.5]))
    assert [endpoint.address for endpoint in ranked] == sorted(figures, key=lambda address: figures[address]["total"])


def test_equals_are_drawn_by_lot() -> None:
    rng = random.Random(3)
    firsts = Counter(Picker().rank(ask(), [candidate(A), candidate(B)], rng)[0].address for _ in range(400))
    assert firsts[A] == pytest.approx(200, abs=50)


def test_the_same_seed_gives_the_same_picks() -> None:
    def picks(seed: int) -> list[str]:
        _, decides = mixed(random.Random(seed), a="a100", b="a100", c="a100")
        return [pick(decides, str(number), number / 10, prompt=10 * number) for number in range(60)]

    assert picks(7) == picks(7) != picks(8)


def test_equal_endpoints_share_equally_over_time() -> None:
    fleet, decides = mixed(random.Random(5), a="a100", b="a100", c="a100")
    shares: Counter[str] = Counter()
    sent: list[str] = []
    for number in range(900):
        now = number / 20
        sent.append(pick(decides, str(number), now, prompt=200 + number % 7 * 100))
        shares[sent[-1]] += 1
        if number >= 20:
            place = next(one for one in fleet.view("default", now).endpoints if one.address == sent[number - 20])
            took = 0.1 + 99 * prior("a100").step(place.requests, place.context)
            fleet.apply(RequestEnded(str(number - 20), 100, ttft=0.1, duration=took), now)
    assert [shares[address] for address in (A, B, C)] == pytest.approx([300] * 3, rel=0.15)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 8), burst=st.integers(1, 60), prompt=st.integers(0, 20_000), idle=st.booleans())
def test_a_burst_between_two_scrapes_spreads(size: int, burst: int, prompt: int, *, idle: bool) -> None:
    members = [f"10.0.0.{number}:8000" for number in range(size)]
    fleet, decides = dispatcher(POLICY, *members, rng=random.Random(1))
    if idle:
        for address in members:
            fleet.apply(ScrapeStarted(address), 0.0)
            fleet.apply(LoadReported(address, EngineReport(0.0, 0.0, 0.0, 424_000.0)), 0.0)
    for number in range(burst):
        pick(decides, str(number), prompt=prompt)
    sent = [endpoint.inflight_requests for endpoint in fleet.view("default", 0.0).endpoints]
    assert max(sent) - min(sent) <= 1


def test_a_silent_endpoint_is_neither_idle_nor_dead() -> None:
    """Nine report ten requests of others each; the tenth has a broken metrics page."""
    members = [f"10.0.0.{number}:8000" for number in range(10)]
    fleet, decides = dispatcher(POLICY, *members, rng=random.Random(1))
    for address in members[:9]:
        fleet.apply(LoadReported(address, EngineReport(10.0, 0.0, 0.1, 424_000.0)), 0.0)
    shares = Counter(pick(decides, str(number)) for number in range(100))
    assert 5 <= shares[members[9]] <= 15


def test_a_failing_fast_endpoint_loses_its_requests_and_is_tried_again_later() -> None:
    fleet, decides = mixed(random.Random(1), a="h100", b="rtx4090")
    late = []
    for number in range(400):
        now = number / 10
        picked = pick(decides, str(number), now)
        if picked == A:
            fleet.apply(RequestEnded(str(number), failed=True, ttft=0.001, duration=0.001, output_tokens=900), now)
            late.append(now)
        elif number >= 10:
            fleet.apply(RequestEnded(str(number), 100, ttft=0.2, duration=2.2), now)
    assert len(late) < 40
    assert pick(decides, "much later", 1000.0) == A


def test_a_full_cache_sends_the_request_on_even_to_a_slower_gpu() -> None:
    fleet, decides = mixed(random.Random(1), a="rtx4090", b="t4")
    fleet.apply(LoadReported(A, EngineReport(2.0, 0.0, 0.9, 35_000.0)), 0.0)
    fleet.apply(LoadReported(B, EngineReport(0.0, 0.0, 0.0, 400_000.0)), 0.0)
    assert pick(decides, "fits on one alone", prompt=40_000) == B
