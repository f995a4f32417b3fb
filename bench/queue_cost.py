"""What a request costs that waits: the CPU time of the admission alone, with so many waiting."""

import itertools
import random
import time

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared, RequestEnded
from tidegate.fleet.state import Fleet
from tidegate.scheduling.admission import Admission
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.line import Asker, QueueSettings
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.queue import Bounds
from tidegate.scheduling.request import InferenceRequest
from tidegate.tokens.count import CountSource, TokenCount

ENDPOINTS, BATCH = 4, 8
TENANTS = 10
PRIORITIES = (10, 0, 0, -1)
SETTINGS = QueueSettings(Bounds(requests=100_000), max_wait_seconds=1e6, batch_max_wait_seconds=1e6)


def cost(waiting: int, rounds: int, policy: str = "predicted_latency") -> tuple[float, float]:
    """Return microseconds of CPU for a request that goes at once, and for one that waits and goes, with others waiting.

    The second holds its coming, its place, the look for room when another one ends, its turn and the decision; each of
    ``rounds`` requests comes while ``waiting`` others wait, and one goes.
    """
    idle, queued = _Fleet(policy), _Fleet(policy)
    straight = queued_for = 0.0
    for _ in range(rounds):
        began = time.process_time()
        name = idle.ask()
        straight += time.process_time() - began
        idle.end(name)
    while len(queued.running) < ENDPOINTS * BATCH:
        queued.ask()
    for _ in range(waiting):
        queued.ask()
    for _ in range(rounds):
        began = time.process_time()
        queued.ask()
        queued_for += time.process_time() - began
        # The end itself is nobody's wait.
        queued.end(queued.running[0])
        began = time.process_time()
        queued.look()
        queued_for += time.process_time() - began
    return straight / rounds * 1e6, queued_for / rounds * 1e6


class _Fleet:
    """Four endpoints that are given no prompt to prefill, and their queue; time passes by a millisecond a request."""

    def __init__(self, policy: str) -> None:
        members = tuple(EndpointSpec(f"10.0.0.{at}:8000", max_running=BATCH) for at in range(1, ENDPOINTS + 1))
        declared = PoolsDeclared((PoolSpec("p", "none", ("*",), members),))
        self.running: list[str] = []
        self._now = 0.0
        self._fleet = Fleet(1e9)
        self._fleet.apply(declared, 0.0)
        dispatcher = Dispatcher(self._fleet, random.Random(1))
        self._admission = Admission(self._fleet, dispatcher)
        rooms = self._admission.configure({"p": SETTINGS}, 0.0)
        dispatcher.configure(declared, {"p": Policy(policy)}, rooms)
        self._numbers = itertools.count()

    def ask(self) -> str:
        number = next(self._numbers)
        self._now += 0.001
        asked = InferenceRequest(f"r{number}", "completions", "m", TokenCount(1, CountSource.EXACT), 20)
        asker = Asker(f"t{number % TENANTS}", PRIORITIES[number % len(PRIORITIES)], 1_000)
        if isinstance(self._admission.ask(asked, self._now, asker), Decision):
            self.running.append(asked.id)
        return asked.id

    def end(self, name: str) -> None:
        self._fleet.apply(RequestEnded(name), self._now)
        self.running.remove(name)

    def look(self) -> None:
        over = self._admission.poll(self._now)
        self.running += [one.place.request.id for one in over if isinstance(one.outcome, Decision)]
