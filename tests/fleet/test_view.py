"""What readers hold cannot be changed under them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.declare import A, B, C, fleet_of, pool, reservation, seen
from tidegate.fleet.events import (
    FleetEvent,
    LoadReported,
    PoolsDeclared,
    RequestEnded,
    RequestReserved,
    ScrapeFailed,
    ScrapeStarted,
)
from tidegate.fleet.load import EngineReport
from tidegate.fleet.member import KEPT_SECONDS
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView

ADDRESSES, IDS = st.sampled_from((A, B, C)), st.sampled_from(("1", "2", "3", "4"))
EVENTS = st.one_of(
    st.builds(lambda name, to: RequestReserved(reservation(name, address=to), (1, 2), 16), IDS, ADDRESSES),
    st.builds(RequestEnded, IDS, st.none() | st.integers(1, 50), failed=st.booleans()),
    st.builds(ScrapeStarted, ADDRESSES),
    st.builds(
        lambda place, waiting, total: LoadReported(place, EngineReport(3.0, waiting, 0.5, 9e4, total)),
        *(ADDRESSES, st.none() | st.floats(0, 9), st.none() | st.floats(0, 9)),
    ),
    st.builds(ScrapeFailed, ADDRESSES, unreachable=st.booleans(), reason=st.just("refused")),
    st.sampled_from([PoolsDeclared((pool(A, B, C),)), PoolsDeclared((pool(A, C, weights={C: 3}),))]),
)


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


def as_if_never_seen(fleet: Fleet, now: float) -> tuple[EndpointView, ...]:
    for state in fleet._pools.values():
        for member in state.members:
            member.shown = None
    return fleet.view("default", now).endpoints


@given(st.lists(st.tuples(EVENTS, st.sampled_from((0.0, 2.0, 6.0))), max_size=30))
def test_what_happens_is_seen_at_once(happens: list[tuple[FleetEvent, float]]) -> None:
    """All but how many tokens requests of others have, which is a mean that every request moves a little."""
    fleet, now = fleet_of(pool(A, B, C)), 0.0
    for event, later in happens:
        now += later
        fleet.view("default", now)
        fleet.apply(event, now)
        shown = fleet.view("default", now).endpoints
        for kept, fresh in zip(shown, as_if_never_seen(fleet, now), strict=True):
            assert kept.tokens == pytest.approx(fresh.tokens, rel=0.5)
            assert kept._replace(tokens=0.0, context=0.0) == fresh._replace(tokens=0.0, context=0.0)


def test_what_time_alone_changes_is_seen_a_moment_later() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(LoadReported(A, EngineReport(1.0)), 0.0)
    assert seen(fleet, A, 0.0).report_age == 0.0
    assert seen(fleet, A, KEPT_SECONDS).report_age == 0.0
    assert seen(fleet, A, 2 * KEPT_SECONDS).report_age == 2 * KEPT_SECONDS
