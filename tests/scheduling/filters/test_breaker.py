"""The filter ``breaker``: whoever is left alone gets no request, and whoever is tried gets one."""

from tests.scheduling.ask import A, B, C, D, ask, candidate
from tidegate.fleet.breaker import BreakerRules, Circuit
from tidegate.fleet.endpoint import PoolSpec
from tidegate.scheduling.filters import breaker, chain, screen


def test_an_open_breaker_and_one_that_is_being_tried_leave_an_endpoint_out() -> None:
    kept = breaker.keep(
        ask(),
        [
            candidate(A)._replace(circuit=Circuit.OPEN),
            candidate(B)._replace(circuit=Circuit.TRYING),
            candidate(C)._replace(circuit=Circuit.HALF_OPEN),
            candidate(D),
        ],
    )
    assert [endpoint.address for endpoint in kept] == [C, D]


def test_where_every_breaker_is_open_all_are_asked() -> None:
    both = [candidate(address)._replace(circuit=Circuit.OPEN) for address in (A, B)]
    screened = screen(ask(), both, chain(("breaker",)))
    assert [endpoint.address for endpoint in screened.kept] == [A, B]
    assert screened.doubtful


def test_a_pool_without_breakers_is_not_asked() -> None:
    assert breaker.idle(PoolSpec("default", "vllm", ("*",), ()))
    assert not breaker.idle(PoolSpec("default", "vllm", ("*",), (), breaker=BreakerRules()))
