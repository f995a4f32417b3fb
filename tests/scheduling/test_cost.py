"""What a request costs on an endpoint."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import A, candidate
from tidegate.fleet.gpu import PRIORS, prior
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.cost import NEVER_FITS, QUEUE_SECONDS, WAIT_WEIGHT, Cost, cost, costs

IDLE = candidate(A)._replace(pace=prior("a100"))
SHARES, COUNTS, TOKENS = st.floats(0.0, 1.0), st.floats(0.0, 1e6), st.floats(0.0, 1e9)


def loaded(pace: str, requests: float, context: float, backlog: float, busy: float, failing: float) -> EndpointView:
    """Return an endpoint with ``requests`` that have ``context`` tokens so far and may come to twice that."""
    busier = candidate(A, requests=requests, tokens=2 * context)
    return busier._replace(pace=prior(pace), context=context, backlog=backlog, busy=busy, failing=failing)


def endpoints() -> st.SearchStrategy[EndpointView]:
    """Return a strategy for endpoints under any load."""
    return st.builds(loaded, st.sampled_from(list(PRIORS)), COUNTS, TOKENS, TOKENS, SHARES, SHARES)


def test_alone_it_takes_its_prefill_and_its_steps() -> None:
    alone, pace = cost(IDLE, 10_000, 100), prior("a100")
    assert alone.wait < 0.01
    assert alone.prefill == pytest.approx(10_000 * pace.prefill_seconds, rel=0.1)
    assert alone.decode == pytest.approx(100 * pace.step(1, 10_050), rel=0.01)
    assert (alone.others, alone.risk) == (0.0, 0.0)
    assert alone.ttft == alone.wait + alone.prefill
    assert alone.total == pytest.approx(
        WAIT_WEIGHT * alone.wait + alone.prefill + alone.decode + alone.cache + alone.queue
    )
    assert costs([candidate(A, requests=9), IDLE], 10_000, 100)[1] == alone


def test_a_long_wait_costs_more_than_many_short_ones() -> None:
    queues = [cost(IDLE._replace(backlog=tokens), 10, 10) for tokens in (5_000.0, 50_000.0)]
    assert queues[1].queue > 50 * queues[0].queue
    assert queues[1].queue == pytest.approx(queues[1].wait ** 2 / QUEUE_SECONDS)


def test_the_prompts_before_it_are_waited_for() -> None:
    wait = cost(IDLE._replace(backlog=20_000.0), 10, 10).wait - cost(IDLE, 10, 10).wait
    assert wait == pytest.approx(20_000 * prior("a100").prefill_seconds, rel=0.1)


def test_what_is_cached_needs_no_prefill() -> None:
    assert cost(IDLE._replace(cached_tokens=9_000), 10_000, 10).prefill < cost(IDLE, 10_000, 10).prefill / 5
    assert cost(IDLE._replace(cached_tokens=10**6), 10_000, 10).prefill > 0


def test_what_another_has_cached_is_not_computed_again_for_a_little_wait() -> None:
    warm = IDLE._replace(cached_tokens=9_000, backlog=4_000.0)
    assert costs([warm, IDLE], 10_000, 10)[0] < costs([warm, IDLE], 10_000, 10)[1]
    swamped = warm._replace(backlog=90_000.0)
    assert costs([swamped, IDLE], 10_000, 10)[0] > costs([swamped, IDLE], 10_000, 10)[1]


def test_where_nobody_has_anything_the_cache_tells_nobody_apart() -> None:
    offered = [IDLE._replace(pace=prior(gpu)) for gpu in ("h100", "rtx4090", "t4")]
    assert len({Cost(*parts).cache for parts in costs(offered, 5_000, 100)}) == 1


def test_a_long_prompt_is_charged_for_the_requests_that_it_stalls() -> None:
    busy = loaded("a100", 30, 30_000, 0, 0, 0)
    assert cost(busy, 100_000, 10).others > 30 * cost(busy, 100_000, 10).prefill / 2
    assert cost(busy, 10, 10).others < 0.05


def test_a_full_cache_is_waited_for() -> None:
    nearly, pace = candidate(A, requests=20), prior("rtx4090")
    there = [nearly._replace(pace=pace, tokens=share * pace.kv_tokens) for share in (0.5, 0.9, 1.5, 3.0)]
    waits = [cost(endpoint, 1000, 200).wait for endpoint in there]
    assert waits[0] == waits[1] < waits[2] < waits[3]
    assert waits[2] - waits[1] == pytest.approx(0.5 * 200 * pace.step(20, 0), rel=0.2)


def test_a_full_batch_is_waited_for() -> None:
    assert cost(candidate(A, requests=400), 10, 200).wait > 10 * cost(candidate(A, requests=200), 10, 200).wait


def test_what_can_never_fit_costs_more_than_any_wait() -> None:
    assert cost(IDLE._replace(pace=prior("rtx4090")), 100_000, 10).total > NEVER_FITS > cost(IDLE, 100_000, 10).total


def test_failures_cost_more_than_speed_gains() -> None:
    fast = IDLE._replace(pace=prior("b200"), failing=0.9)
    slow = loaded("rtx3090", 20, 20_000, 500, 0.3, 0.0)
    assert cost(fast, 1000, 200).total > cost(slow, 1000, 200).total


def test_a_faster_gpu_costs_less() -> None:
    order = [cost(IDLE._replace(pace=prior(name)), 1000, 200).total for name in ("h100", "a100", "rtx4090", "t4")]
    assert order == sorted(order)


@given(endpoints(), st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**8))
def test_every_part_is_a_number_and_none_is_negative(
    endpoint: EndpointView, prompt: int, output: int, cached: int
) -> None:
    assert all(0 <= part < math.inf for part in cost(endpoint._replace(cached_tokens=cached), prompt, output))


@given(
    endpoints(),
    st.integers(0, 10**6),
    st.integers(0, 10**5),
    st.tuples(COUNTS, TOKENS, TOKENS, SHARES, SHARES),
)
def test_more_load_never_makes_an_endpoint_more_attractive(
    endpoint: EndpointView, prompt: int, output: int, more: tuple[float, float, float, float, float]
) -> None:
    requests, context, backlog, busy, failing = more
    busier = endpoint._replace(
        requests=endpoint.requests + requests,
        tokens=endpoint.tokens + 2 * context,
        context=endpoint.context + context,
        backlog=endpoint.backlog + backlog,
        busy=min(1.0, endpoint.busy + busy),
        failing=min(1.0, endpoint.failing + failing),
    )
    assert cost(busier, prompt, output).total >= cost(endpoint, prompt, output).total * (1 - 1e-9)


@given(endpoints(), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**6), st.integers(0, 10**5))
def test_a_larger_request_never_costs_less(
    endpoint: EndpointView, prompt: int, output: int, longer: int, more: int
) -> None:
    larger = cost(endpoint, prompt + longer, output + more).total
    assert larger >= cost(endpoint, prompt, output).total * (1 - 1e-9)
