"""Three control planes before the same silent engines, each with an Envoy: each sees what the others send."""

import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.e2e.holding import REQUEST, HoldingEngine
from tests.e2e.stack import Stack, configuration, fetch, until, up
from tests.e2e.workers import Workers, with_workers
from tests.sharing.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.timeout(240)  # three stacks begin, one after the other

REPLICAS, ENGINES = 3, 8


class Replicas:
    """The control planes, the engines that hold their requests, and what the planes share."""

    def __init__(self, stacks: Sequence[Stack], engines: Sequence[HoldingEngine], redis: RedisServer) -> None:
        self.stacks = stacks
        self.engines = engines
        self.redis = redis
        self._clients = ExitStack()

    def close(self) -> None:
        self._clients.close()

    def send(self, stack: Stack, times: int) -> None:
        """Send requests that stay in flight, one when all know of the one before."""
        for _ in range(times):
            self.agree()
            if stack is self.stacks[-1]:
                # What its workers know is not to be seen: they are told at the same time as what is shown, and then
                # have a second to look at it.
                before = self.calls(stack)
                until(lambda before=before: self.calls(stack) >= before + 4, 30, "it is told")  # type: ignore[misc]
            self._begin(stack)

    def burst(self, times: int) -> None:
        """Send so many through each at the same time."""
        with ThreadPoolExecutor(4 * REPLICAS) as clients:
            list(clients.map(self._begin, [*self.stacks] * times))

    def _begin(self, stack: Stack) -> None:
        client = self._clients.enter_context(
            socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), timeout=30)
        )
        client.sendall(REQUEST)
        assert client.recv(12) == b"HTTP/1.1 200"

    def calls(self, stack: Stack) -> float:
        """Return how often Redis has answered it, four times a second and more."""
        return stack.total("tidegate_redis_calls_total", outcome="ok")

    def held(self) -> list[int]:
        """Return how many requests each engine holds."""
        return [engine.held for engine in self.engines]

    def seen(self, stack: Stack, key: str = "requests") -> list[int]:
        """Return how many ``stack`` believes that each holds."""
        (pool,) = fetch(f"{stack.admin}/status")[1]["pools"]
        return [round(endpoint[key]) for endpoint in pool["endpoints"]]

    def agree(self) -> None:
        """Wait until every control plane knows what every engine holds, exactly."""
        for stack in self.stacks:
            until(lambda stack=stack: self.seen(stack) == self.held(), 20, "all is known")  # type: ignore[misc]


@pytest.fixture
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("replicas")
    with ExitStack() as running:
        redis = running.enter_context(redis_server(folder))
        engines = [HoldingEngine() for _ in range(ENGINES)]
        for engine in engines:
            running.enter_context(engine.running())
        ports = [engine.port for engine in engines]
        stacks = []
        for number in range(REPLICAS):
            # The last one decides in two processes.
            last = number == REPLICAS - 1
            config = with_workers(ports) if last else configuration(ports, policy="least_request")
            config["pools"][0]["engine"] = "none"
            config["redis"] = {"url": f"redis://127.0.0.1:{redis.port}", "timeout_seconds": 1.0, "replicas": REPLICAS}
            (own := folder / str(number)).mkdir()
            stacks.append(running.enter_context(up(own, config)))
        Workers(stacks[-1]).ready()
        made = Replicas(stacks, engines, redis)
        running.callback(made.close)
        yield made


def test_what_one_replica_sends_the_others_know_and_avoid(replicas: Replicas) -> None:
    first, second, last = replicas.stacks
    for stack, times in ((first, 3), (second, 3), (last, 2)):
        replicas.send(stack, times)
    replicas.agree()
    # Each engine was idle when it was picked. If they did not know of each other, that would be one time in 300.
    assert replicas.held() == [1] * ENGINES
    assert sum(replicas.seen(last, "inflight_requests")) == 2

    replicas.burst(16)
    replicas.agree()
    held = replicas.held()
    assert sum(held) == ENGINES + 16 * REPLICAS
    assert max(held) - min(held) <= 4

    replicas.redis.freeze()
    try:
        for stack in replicas.stacks:
            own = replicas.seen(stack, "inflight_requests")
            until(lambda stack=stack, own=own: replicas.seen(stack) == own, 20, "others are forgotten")  # type: ignore[misc]
        began = time.monotonic()
        replicas.burst(2)
        assert time.monotonic() - began < 10
    finally:
        replicas.redis.thaw()
    replicas.agree()
    assert replicas.stacks[0].total("tidegate_redis_others_requests") == sum(replicas.held()) - sum(
        replicas.seen(first, "inflight_requests")
    )
