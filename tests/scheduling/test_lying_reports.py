"""F20: an engine that says it has nothing to do, while it is slow, draws no herd: what we sent there counts."""

import heapq
import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, D, ask
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, PoolsDeclared, RequestEnded, ScrapeStarted
from tidegate.fleet.evidence import Ending
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.policy import Policy

LIAR = B
SECONDS = {A: 0.5, LIAR: 5.0, C: 0.5, D: 0.5}
"""How long a request takes, however many are there."""


def picked(policy: str) -> Counter[str]:
    """Return how often each endpoint was picked in a minute of twenty requests a second."""
    declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), tuple(map(EndpointSpec, SECONDS))),))
    fleet = Fleet(45.0)
    fleet.apply(declared, 0.0)
    decides = Dispatcher(fleet, random.Random(20))
    decides.configure(declared, {"default": Policy(policy)})
    found: Counter[str] = Counter()
    running: list[tuple[float, str, str]] = []
    there: Counter[str] = Counter()
    for tick in range(1200):
        now = tick / 20
        while running and running[0][0] <= now:
            ended_at, name, address = heapq.heappop(running)
            there[address] -= 1
            seconds = SECONDS[address]
            end = RequestEnded(name, 50, ttft=seconds / 2, duration=seconds, ending=Ending.SERVED)
            fleet.apply(end, ended_at)
        if tick % 20 == 0:
            for address in SECONDS:
                fleet.apply(ScrapeStarted(address), now)
                fleet.apply(LoadReported(address, EngineReport(0.0 if address == LIAR else there[address], 0.0)), now)
        decision = decides.decide(ask(f"r{tick}", limit=50), now)
        assert isinstance(decision, Decision)
        address = decision.addresses[0]
        found[address] += 1
        there[address] += 1
        heapq.heappush(running, (now + SECONDS[address], decision.reservation.id, address))
    return found


@pytest.mark.parametrize(
    "policy", ["predicted_latency", "least_request", "least_tokens", "power_of_two", "kv_headroom"]
)
def test_one_that_lies_gets_less_than_its_share_and_not_twice_that(policy: str) -> None:
    found = picked(policy)
    assert found[LIAR] < found.total() / 4, found
