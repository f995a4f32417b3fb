"""Whoever is to get less than its share gets no more, whatever the policy goes by."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import ask
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import EvidenceReported, GpuMemoryReported, PoolsDeclared, RequestEnded, TimePassed
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.health import RULES, HealthStatus
from tidegate.fleet.state import Fleet
from tidegate.fleet.vram import GpuMemory
from tidegate.scheduling import pickers
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.quota import Quota

MEMBERS = tuple(f"10.0.0.{number}:8000" for number in range(1, 9))
NEW = "10.0.0.9:8000"


def declared(*addresses: str) -> PoolsDeclared:
    return PoolsDeclared((PoolSpec("default", "vllm", ("*",), tuple(map(EndpointSpec, addresses))),))


def running(policy: str) -> tuple[Fleet, Dispatcher]:
    """Return a fleet of eight to which a ninth has just come."""
    fleet = Fleet(45.0)
    fleet.apply(declared(*MEMBERS), 0.0)
    decides = Dispatcher(fleet, random.Random(3))
    decides.configure(declared(*MEMBERS), {"default": Policy(policy)})
    fleet.apply(declared(*MEMBERS, NEW), 1.0)
    return fleet, decides


def asked(fleet: Fleet, decides: Dispatcher, times: int, now: float, held: int) -> Counter[str]:
    """Return how often each was picked, with ``held`` requests in flight."""
    picks, inflight = Counter[str](), []
    for number in range(times):
        decision = decides.decide(ask(f"{now}-{number}"), now)
        assert isinstance(decision, Decision)
        picks[decision.addresses[0]] += 1
        inflight.append(decision.reservation.id)
        if len(inflight) > held:
            fleet.apply(RequestEnded(inflight.pop(0), 50), now)
    for one in inflight:
        fleet.apply(RequestEnded(one, 50), now)
    return picks


@pytest.mark.parametrize("policy", sorted(set(pickers.names()) - {"session"}))
def test_one_that_joins_gets_no_more_than_its_growing_share(policy: str) -> None:
    fleet, decides = running(policy)
    shares = []
    for second in range(0, 30, 5):
        now = 1.0 + second
        fleet.apply(TimePassed(), now)
        view = fleet.view("default", now).endpoints[-1]
        assert view.health is HealthStatus.WARMING
        picks = asked(fleet, decides, 450, now, held=30)
        assert picks[NEW] <= view.share * 450 / 9 * 1.25 + 4
        shares.append(picks[NEW])
    fleet.apply(TimePassed(), 1.0 + RULES.warm_up_seconds)
    assert fleet.is_well("default")
    assert asked(fleet, decides, 450, 40.0, held=30)[NEW] >= shares[0]


@pytest.mark.parametrize("policy", ["round_robin", "random"])
def test_a_share_that_is_not_reckoned_with_is_still_given(policy: str) -> None:
    fleet, decides = running(policy)
    fleet.apply(TimePassed(), 16.0)
    share = fleet.view("default", 16.0).endpoints[-1].share
    assert asked(fleet, decides, 900, 16.0, held=0)[NEW] == pytest.approx(share * 900 / 9, rel=0.35)


def test_where_it_is_nobodys_turn_all_are_looked_at() -> None:
    fleet, _ = running("random")
    fleet.apply(EvidenceReported(NEW, Evidence("http", Verdict.IMPAIRED)), 1.0)
    alone = fleet.view("default", 1.0).endpoints[-1:]
    quota = Quota()
    assert quota.keep(alone) == alone
    quota.decided(alone, NEW)
    assert quota.keep(alone) == alone


def test_a_pool_in_which_all_are_ejected_or_drain_earns_nothing() -> None:
    fleet, _ = running("random")
    views = [one._replace(ejected=True) for one in fleet.view("default", 1.0).endpoints]
    quota = Quota()
    quota.decided(views, NEW)
    assert quota.keep(views) == views[:-1]


def test_an_explanation_spends_nobodys_turn() -> None:
    fleet, decides = running("round_robin")
    fleet.apply(TimePassed(), 16.0)
    for number in range(200):
        decides.explain(ask(f"x{number}"), 16.0)
    assert asked(fleet, decides, 9, 16.0, held=0)[NEW] == 0


@pytest.mark.parametrize("policy", ["round_robin", "random"])
def test_whoever_alone_can_serve_a_request_gets_it_out_of_turn(policy: str) -> None:
    fleet, decides = running(policy)
    specs = (*(EndpointSpec(one, models=("others",)) for one in MEMBERS), EndpointSpec(NEW, models=("its-own",)))
    pool = PoolsDeclared((PoolSpec("default", "vllm", ("*",), specs),))
    fleet.apply(pool, 2.0)
    decides.configure(pool, {"default": Policy(policy)})
    for number in range(20):
        decision = decides.decide(ask(f"r{number}", model="its-own"), 2.0)
        assert isinstance(decision, Decision)
        assert decision.addresses[0] == NEW


def test_what_one_alone_is_fit_for_is_not_sent_to_who_has_no_room_because_it_is_not_its_turn() -> None:
    fleet, decides = running("round_robin")
    for address in MEMBERS:
        fleet.apply(GpuMemoryReported(address, GpuMemory(80 << 30, 1 << 20, 60.0)), 2.0)
    pool = PoolsDeclared(
        (PoolSpec("default", "none", ("*",), tuple(map(EndpointSpec, (*MEMBERS, NEW))), vram="headroom"),)
    )
    fleet.apply(pool, 2.0)
    decides.configure(pool, {"default": Policy("round_robin")})
    for number in range(20):
        decision = decides.decide(ask(f"r{number}", prompt=16_000), 2.0)
        assert isinstance(decision, Decision)
        assert decision.addresses[0] == NEW
