"""The whole fleet under any order of events: it never fails, never counts below zero, and ends empty."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.declare import A, B, C
from tidegate.fleet.breaker import BreakerRules
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    EvidenceReported,
    FleetEvent,
    GpuMemoryReported,
    LoadReported,
    OthersReported,
    PoolsDeclared,
    RequestEnded,
    RequestProgressed,
    RequestQuarantined,
    RequestReserved,
    ScrapeFailed,
    ScrapeStarted,
    TimePassed,
)
from tidegate.fleet.evidence import Ending, Evidence, Verdict
from tidegate.fleet.health import HealthStatus
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.load import EngineReport
from tidegate.fleet.others import Others
from tidegate.fleet.state import Fleet
from tidegate.fleet.vram import GpuMemory

LEASE = 45.0
ADDRESSES = st.sampled_from([A, B, C, "[fd00::1]:80"])
NAMES = st.sampled_from(["one", "two"])
IDS = st.sampled_from([f"r{number}" for number in range(8)])
TOKENS = st.integers(0, 10**7)
SECONDS = st.none() | st.floats(0, 1e6)
GAUGE = st.none() | st.floats()
RULES = st.none() | st.just(BreakerRules(consecutive=2.0, volume=3, window_seconds=5.0, open_seconds=1.0))
ENDINGS = st.none() | st.sampled_from(Ending)
CHAINS = st.lists(st.integers(0, 9), max_size=5, unique=True).map(tuple)


@st.composite
def declarations(draw: st.DrawFn) -> PoolsDeclared:
    """Draw pools that share no endpoint, as the configuration guarantees."""
    names = draw(st.lists(NAMES, unique=True))
    homes = draw(st.dictionaries(ADDRESSES, st.tuples(st.sampled_from(names or [""]), st.integers(1, 1000))))
    return PoolsDeclared(
        tuple(
            PoolSpec(
                name,
                "vllm",
                ("*",),
                tuple(EndpointSpec(address, weight) for address, (home, weight) in homes.items() if home == name),
                breaker=draw(RULES),
            )
            for name in names
        )
    )


EVENTS: st.SearchStrategy[FleetEvent] = st.one_of(
    declarations(),
    st.builds(ScrapeStarted, ADDRESSES),
    st.builds(LoadReported, ADDRESSES, st.builds(EngineReport, GAUGE, GAUGE, GAUGE, GAUGE, GAUGE, GAUGE)),
    st.builds(ScrapeFailed, ADDRESSES, st.booleans(), st.just("refused")),
    st.builds(
        RequestReserved,
        st.builds(
            Reservation,
            *(IDS, NAMES, ADDRESSES, TOKENS, TOKENS, st.just(0.0)),
            uncached_tokens=st.none() | TOKENS,
            fingerprint=st.integers(0, 2**64 - 1),
        ),
        CHAINS,
        st.integers(0, 500),
    ),
    st.builds(RequestQuarantined, st.integers(0, 2**64 - 1), st.floats(0.0, 1e6)),
    st.builds(BlocksStored, ADDRESSES, CHAINS, st.integers(0, 500)),
    st.builds(BlocksRemoved, ADDRESSES, CHAINS),
    st.builds(BlocksCleared, ADDRESSES),
    st.builds(GpuMemoryReported, ADDRESSES, st.builds(GpuMemory, TOKENS, TOKENS, st.floats(0.0, 20.0))),
    st.builds(RequestProgressed, IDS),
    st.builds(
        RequestEnded,
        *(IDS, st.none() | TOKENS, SECONDS, SECONDS, st.none() | TOKENS, st.booleans(), ENDINGS),
        elsewhere=st.lists(st.tuples(ADDRESSES, st.sampled_from(Ending)), max_size=2).map(tuple),
    ),
    st.builds(
        EvidenceReported,
        ADDRESSES,
        st.builds(
            Evidence,
            st.sampled_from(["agent", "breaker", "http"]),
            st.sampled_from(Verdict),
            st.just(("why",)),
            st.just("because"),
            st.sampled_from([math.inf, 5.0]),
        ),
    ),
    st.builds(
        OthersReported,
        st.lists(
            st.tuples(ADDRESSES, st.builds(Others, TOKENS, TOKENS, TOKENS, TOKENS)),
            max_size=3,
            unique_by=lambda one: one[0],
        ).map(tuple),
        st.floats(0.0, 5.0),
    ),
    st.just(TimePassed()),
)
STEPS = st.lists(st.tuples(EVENTS, st.floats(0.0, 10.0), st.booleans()), max_size=60)


def check(fleet: Fleet, now: float) -> None:
    """Assert what holds at any time."""
    for view in fleet.views(now):
        out = [endpoint for endpoint in view.endpoints if endpoint.ejected]
        assert 2 * len(out) <= len(view.endpoints)
        for endpoint in view.endpoints:
            assert endpoint.inflight_requests >= 0
            assert endpoint.inflight_tokens >= 0
            assert endpoint.inflight_requests <= endpoint.requests
            assert endpoint.inflight_tokens <= endpoint.tokens
            assert not math.isnan(endpoint.tokens)
            assert endpoint.ejected is (endpoint.health is HealthStatus.EJECTED)
            assert 0.0 < endpoint.share <= 1.0
        assert fleet.expected_output(view.name, None) >= 0
        cached = fleet.cached(view.name, (1, 2, 3))
        assert set(cached.best(9)) <= {endpoint.address for endpoint in view.endpoints}
    busy = [fleet.ledger.inflight(address).requests for address in fleet.ledger.addresses()]
    assert sum(busy) == len(fleet.ledger)
    assert all(requests > 0 for requests in busy)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_no_order_of_events_fails_or_leaks(steps: list[tuple[FleetEvent, float, bool]]) -> None:
    fleet, now = Fleet(LEASE), 0.0
    for event, pause, also_expire in steps:
        now += pause
        fleet.apply(event, now)
        if also_expire:
            fleet.expire(now)
        check(fleet, now)
    fleet.expire(now + LEASE)
    assert len(fleet.ledger) == 0
    assert list(fleet.ledger.addresses()) == []
    assert all(endpoint.inflight_tokens == 0 for view in fleet.views(now) for endpoint in view.endpoints)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_the_same_events_give_the_same_fleet(steps: list[tuple[FleetEvent, float, bool]]) -> None:
    one, two, now = Fleet(LEASE), Fleet(LEASE), 0.0
    for event, pause, _ in steps:
        now += pause
        assert one.apply(event, now) == two.apply(event, now)
    assert one.views(now) == two.views(now)
