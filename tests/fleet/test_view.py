"""What readers hold cannot be changed under them."""

import pytest

from tests.fleet.declare import A, B, fleet_of, pool, reservation, seen
from tidegate.fleet.events import PoolsDeclared, RequestReserved


def test_a_view_stays_as_it_was_when_the_fleet_moves_on() -> None:
    fleet = fleet_of(pool(A, B))
    before = fleet.view("default", 0.0)
    fleet.apply(RequestReserved(reservation(address=A)), 1.0)
    fleet.apply(PoolsDeclared((pool(B),)), 2.0)
    assert [endpoint.address for endpoint in before.endpoints] == [A, B]
    assert before.endpoints[0].inflight_requests == 0


def test_a_view_cannot_be_written_to() -> None:
    endpoint = fleet_of(pool(A)).view("default", 0.0).endpoints[0]
    with pytest.raises(AttributeError):
        endpoint.weight = 5  # type: ignore[misc]


def test_a_view_carries_what_was_declared() -> None:
    view = fleet_of(pool(A, B, weights={B: 7})).view("default", 0.0)
    assert (view.name, view.engine, view.models) == ("default", "vllm", ("*",))
    assert [(endpoint.address, endpoint.weight) for endpoint in view.endpoints] == [(A, 1), (B, 7)]


def test_an_untouched_endpoint_is_unknown_and_not_idle() -> None:
    endpoint = seen(fleet_of(pool(A)), A, 100.0)
    assert (endpoint.running, endpoint.waiting, endpoint.kv_usage, endpoint.report_age) == (None, None, None, None)
