"""The filter ``fits``: there is room in the KV cache and in the batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import A, ask, candidate, candidates
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.filters import fits


def kept(endpoint: EndpointView, prompt: int = 100, output: int = 50) -> bool:
    return bool(fits.keep(ask(prompt=prompt)._replace(output_tokens=output), [endpoint]))


@pytest.mark.parametrize(("usage", "fit"), [(0.0, True), (0.85, True), (0.86, False), (1.0, False)])
def test_the_cache_must_have_room_for_prompt_and_answer(usage: float, fit: bool) -> None:
    assert kept(candidate(A, kv_usage=usage, kv_capacity=1000.0)) is fit


def test_what_was_sent_since_the_report_takes_room_at_once() -> None:
    assert kept(candidate(A, kv_usage=0.0, kv_capacity=1000.0, tokens=850))
    assert not kept(candidate(A, kv_usage=0.0, kv_capacity=1000.0, tokens=851))


def test_what_is_cached_of_the_prompt_needs_no_room_of_its_own() -> None:
    full = candidate(A, kv_usage=0.9, kv_capacity=1000.0)
    assert not kept(full)
    assert kept(full._replace(cached_tokens=50))


def test_without_a_reported_share_our_own_tokens_count() -> None:
    assert not kept(candidate(A, kv_capacity=1000.0, tokens=900))


def test_the_batch_must_have_room_for_one_more() -> None:
    assert kept(candidate(A, requests=3, max_running=4))
    assert not kept(candidate(A, requests=4, max_running=4))


def test_what_is_not_said_is_no_reason() -> None:
    assert kept(candidate(A, kv_usage=1.0, requests=1000), prompt=10**9)


@given(candidates(), st.integers(0, 10**6), st.integers(0, 10**5))
def test_it_reckons_as_the_view_does(offered: list[EndpointView], prompt: int, output: int) -> None:
    request = ask(prompt=prompt)._replace(output_tokens=output)
    expected = [
        endpoint
        for endpoint in offered
        if (endpoint.max_running is None or endpoint.requests < endpoint.max_running)
        and ((free := endpoint.kv_free_tokens) is None or free >= prompt + output - endpoint.cached_tokens)
    ]
    assert list(fits.keep(request, offered)) == expected
