"""Endpoints that drain, and what becomes of those who were at home there."""

import random

from tests.scheduling.ask import A, B, C, ask
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared, RequestEnded
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal, RefusalReason
from tidegate.scheduling.policy import Policy


def declared(*draining: str) -> PoolsDeclared:
    members = tuple(EndpointSpec(address, drain=address in draining) for address in (A, B, C))
    return PoolsDeclared((PoolSpec("default", "vllm", ("*",), members),))


def picks(decides: Dispatcher, prefix: str) -> dict[str, tuple[str, ...]]:
    found = {}
    for number in range(30):
        decision = decides.decide(ask(f"{prefix}{number}", session=f"s{number}"), 1.0)
        assert isinstance(decision, Decision)
        found[f"s{number}"] = decision.addresses
    return found


def test_sessions_of_an_endpoint_that_drains_move_once_and_the_others_stay() -> None:
    fleet = Fleet(45.0)
    fleet.apply(declared(), 0.0)
    decides = Dispatcher(fleet, random.Random(1))
    decides.configure(declared(), {"default": Policy("session")})
    before = picks(decides, "a")
    gone = before["s0"][0]
    fleet.apply(declared(gone), 1.0)
    after, again = picks(decides, "b"), picks(decides, "c")
    assert after == again
    assert all(gone not in addresses for addresses in after.values())
    moved = {session for session in before if before[session][0] != after[session][0]}
    assert moved == {session for session, addresses in before.items() if addresses[0] == gone}


def test_what_runs_on_an_endpoint_that_drains_goes_on_until_it_ends() -> None:
    fleet = Fleet(45.0)
    fleet.apply(declared(), 0.0)
    decides = Dispatcher(fleet, random.Random(1))
    decides.configure(declared(), {"default": Policy("random")})
    decision = decides.decide(ask("long"), 0.0)
    assert isinstance(decision, Decision)
    fleet.apply(declared(decision.addresses[0]), 1.0)
    assert "long" in fleet.ledger
    fleet.apply(RequestEnded("long", 10), 40.0)
    assert "long" not in fleet.ledger


def test_a_pool_that_drains_altogether_takes_nothing() -> None:
    fleet = Fleet(45.0)
    fleet.apply(declared(A, B, C), 0.0)
    decides = Dispatcher(fleet, random.Random(1))
    decides.configure(declared(A, B, C), {"default": Policy("random")})
    assert decides.decide(ask("q"), 0.0) == Refusal(RefusalReason.NO_ENDPOINTS, "default")
