"""Several replicas that decide for one fleet, under virtual time."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.scheduling.ask import ask
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import OthersReported, PoolsDeclared, RequestEnded, RequestReserved
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.others import Others
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.splits import Sharing, Side, Split

ADDRESSES = [f"10.0.0.{number}:8000" for number in range(8)]
BUSY, IDLE = ADDRESSES[:4], ADDRESSES[4:]
REPLICAS = 3
PERIOD, BELIEVED = 0.25, 2.0
NOTHING = Others(0, 0, 0, 0)


class Replica:
    """One that decides, by its own luck, for engines that say nothing; it may know them in another order."""

    def __init__(self, policy: str, number: int) -> None:
        members = tuple(map(EndpointSpec, [*ADDRESSES[number:], *ADDRESSES[:number]]))
        declared = PoolsDeclared((PoolSpec("default", "none", ("*",), members),))
        self.fleet = Fleet(45.0)
        self.fleet.apply(declared, 0.0)
        self._decides = Dispatcher(self.fleet, random.Random(number))
        self._decides.configure(declared, {"default": Policy(policy)})
        self._number = number
        self._made = 0

    def picks(self, now: float, session: str = "") -> str:
        self._made += 1
        request = ask(f"{self._number}.{self._made}", prompt=1_000, limit=500, session=session)
        decision = self._decides.decide(request, now)
        assert isinstance(decision, Decision)
        return decision.reservation.address

    def holds(self, address: str, times: int) -> None:
        """Have so many requests at an endpoint already, long ones, since second 0."""
        for number in range(times):
            one = Reservation(f"{self._number} before {address} {number}", "default", address, 1_000, 500, 0.0)
            self.fleet.apply(RequestReserved(one), 0.0)

    def ends_all(self, now: float) -> None:
        for one in list(self.fleet.ledger):
            self.fleet.apply(RequestEnded(one.id), now)


def tell(replicas: list[Replica], now: float) -> None:
    """Have each tell the others what it has in flight."""
    told = [dict(replica.fleet.in_flight(now)) for replica in replicas]
    for at, replica in enumerate(replicas):
        theirs = [one for number, one in enumerate(told) if number != at]
        loads = tuple(
            (address, Others(*map(sum, zip(*(one.get(address, NOTHING) for one in theirs), strict=True))))
            for address in ADDRESSES
            if any(address in one for one in theirs)
        )
        replica.fleet.apply(OthersReported(loads, BELIEVED), now)


@pytest.mark.parametrize("policy", ["least_request", "least_tokens", "power_of_two", "predicted_latency"])
def test_a_burst_through_one_is_avoided_by_the_others(policy: str) -> None:
    one, *others = replicas = [Replica(policy, number) for number in range(REPLICAS)]
    for address in BUSY:
        one.holds(address, 20)
    tell(replicas, 0.0)
    picked = Counter(replica.picks(0.01) for _ in range(10) for replica in others)
    # Two drawn at random are both among the four busy ones three times in fourteen.
    assert sum(picked[address] for address in IDLE) >= (20 if policy != "power_of_two" else 10)
    if policy == "power_of_two":
        return
    # Without word they go everywhere.
    deaf = Replica(policy, 1)
    assert {deaf.picks(0.01 + BELIEVED) for _ in range(40)} == {*ADDRESSES}
    assert {others[0].picks(0.01 + BELIEVED) for _ in range(80)} == {*ADDRESSES}


@pytest.mark.parametrize("policy", ["least_request", "least_tokens", "predicted_latency"])
@pytest.mark.parametrize(("seconds", "before"), [(0.0, 0), (0.2, 0), (3.0, 0), (3.0, 6)])
def test_a_burst_through_all_of_them_is_spread_evenly(policy: str, seconds: float, before: int) -> None:
    """What one endpoint has more ``before`` all three make up for, until they have told each other."""
    replicas = [Replica(policy, number) for number in range(REPLICAS)]
    replicas[0].holds(ADDRESSES[0], before)
    held, now, told, requests = Counter({ADDRESSES[0]: before}), 0.0, 0.0, 104 - before
    tell(replicas, now)
    for number in range(requests):
        now += seconds / requests
        if now - told >= PERIOD:
            tell(replicas, told := now)
        held[replicas[number % REPLICAS].picks(now)] += 1
    assert sum(held.values()) == 104
    # 13 each; what is not told yet of each replica's differs by one, and so does what each makes of it.
    assert max(held.values()) - min(held[address] for address in ADDRESSES) <= 4
    for replica in replicas:
        replica.ends_all(now)
    tell(replicas, now)
    for replica in replicas:
        assert [endpoint.requests for endpoint in replica.fleet.view("default", now).endpoints] == [0] * 8


def test_all_replicas_have_a_session_at_the_same_endpoint_whatever_else_they_know() -> None:
    replicas = [Replica("session", number) for number in range(REPLICAS)]
    replicas[1].holds(ADDRESSES[0], 50)
    for at in range(100):
        replicas[2].picks(0.0, session=f"only here {at}")
    homes = {f"session-{at}": {replica.picks(1.0, f"session-{at}") for replica in replicas} for at in range(200)}
    assert all(len(found) == 1 for found in homes.values())
    assert len({home for found in homes.values() for home in found}) == 8


def test_all_replicas_have_a_session_at_the_same_endpoint_of_a_pool_too_large_to_look_at() -> None:
    many = tuple(EndpointSpec(f"10.1.{number // 250}.{number % 250}:8000") for number in range(3_000))
    deciding = []
    for number in range(REPLICAS):
        order = list(many)
        random.Random(number).shuffle(order)
        declared = PoolsDeclared((PoolSpec("default", "none", ("*",), tuple(order)),))
        fleet = Fleet(45.0)
        fleet.apply(declared, 0.0)
        decides = Dispatcher(fleet, random.Random(number))
        decides.configure(declared, {"default": replace(Policy("session"), destinations=1)})
        deciding.append(decides)
    for at in range(20):
        outcomes = [decides.decide(ask(f"{at}", session=f"session-{at}"), 0.0) for decides in deciding]
        assert all(isinstance(outcome, Decision) for outcome in outcomes)
        assert len({outcome.reservation.address for outcome in outcomes if isinstance(outcome, Decision)}) == 1


def test_all_replicas_have_a_session_on_the_same_side_of_a_split() -> None:
    split = Split((Side("canary", 10), Side("stable", 90)), "session")
    sharing = [Sharing(split) for _ in range(REPLICAS)]
    for _ in range(7):
        sharing[1].side()
    for at in range(200):
        assert len({one.side(f"session-{at}").pool for one in sharing}) == 1
