"""Three control planes on one Redis, each with an Envoy of its own: what tenants may use, they may use once."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.stack import Stack, configuration, engines, fetch, until, up
from tests.e2e.test_tenants import ask, bearer, budgets
from tests.sharing.redis_server import RedisServer, redis_server
from tidegate.runtime.callers import hashed

pytestmark = pytest.mark.timeout(240)  # three stacks begin, one after the other

REPLICAS = 3
NAMES = ("alice", "bob", "carol", "dave")
ALICE, BOB, CAROL, DAVE = (f"sk-test-{name}-{'0' * 32}" for name in NAMES)
TENANTS: dict[str, Any] = {
    "tenants": [
        {"name": "alice", "limits": {"requests_per_day": 60}},
        {"name": "bob", "limits": {"requests_in_flight": 3}},
        {"name": "carol", "limits": {"requests_per_day": 30}},
        {"name": "dave", "limits": {"output_tokens_per_day": 10_000}},
    ],
    "keys": [
        {"name": name, "tenant": name, "hash": hashed(key)}
        for name, key in zip(NAMES, (ALICE, BOB, CAROL, DAVE), strict=True)
    ],
}


class Replicas:
    """The control planes, and what they share."""

    def __init__(self, stacks: Sequence[Stack], redis: RedisServer) -> None:
        self.stacks = stacks
        self.redis = redis

    def asked(self, key: str, times: int, **body: Any) -> Counter[int]:
        """Return how often each of them, asked so many ``times`` all at once, gave which status."""
        with ThreadPoolExecutor(12) as clients:
            asked = [*self.stacks] * times
            return Counter(clients.map(lambda stack: ask(stack, bearer(key), **body)[0], asked))

    def shared(self, wanted: bool) -> bool:
        return all(stack.total("tidegate_redis_shared") == wanted for stack in self.stacks)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("replicas")
    with ExitStack() as running:
        redis = running.enter_context(redis_server(folder))
        ports = running.enter_context(engines(folder, "h100"))
        settings = {"url": f"redis://127.0.0.1:{redis.port}", "timeout_seconds": 0.2, "replicas": REPLICAS}
        stacks = []
        for number in range(REPLICAS):
            (own := folder / str(number)).mkdir()
            stacks.append(running.enter_context(up(own, {**configuration(ports), **TENANTS, "redis": settings})))
        made = Replicas(stacks, redis)
        until(lambda: made.shared(True), 10, "limits are shared")
        yield made


def test_three_replicas_let_in_as_many_as_one_budget_holds(replicas: Replicas) -> None:
    answers = replicas.asked(ALICE, 30, max_tokens=1)
    # Exactly 60, unless a busy machine lets Redis answer too late, and a replica uses its share for once.
    assert answers[200] == pytest.approx(60, rel=0.05)
    assert answers[200] + answers[429] == 90
    for stack in replicas.stacks:
        until(lambda stack=stack: budgets(stack, "alice") == {"requests_per_day": 0}, 5, "all see it")  # type: ignore[misc]
        assert stack.total("tidegate_redis_calls_total", outcome="ok") > 0
        assert stack.total("tidegate_redis_replicas") == REPLICAS


def test_three_at_a_time_are_three_over_all_and_come_back(replicas: Replicas) -> None:
    assert replicas.asked(BOB, 4, max_tokens=200, ignore_eos=True) == {200: 3, 429: 9}
    for stack in replicas.stacks:
        until(lambda stack=stack: budgets(stack, "bob") == {"requests_in_flight": 3}, 5, "all came back")  # type: ignore[misc]


def test_what_was_reserved_is_settled_by_what_was_used(replicas: Replicas) -> None:
    used = 0
    for stack in replicas.stacks:
        status, answer, _ = ask(stack, bearer(DAVE), max_tokens=60)
        assert status == 200
        used += answer["usage"]["completion_tokens"]
    left = {"output_tokens_per_day": 10_000 - used}
    for stack in replicas.stacks:
        until(lambda stack=stack: budgets(stack, "dave") == left, 5, "the usage is settled")  # type: ignore[misc]


def test_nothing_in_redis_names_a_tenant_or_a_key(replicas: Replicas) -> None:
    ask(replicas.stacks[0], bearer(DAVE))
    keys = replicas.redis.do("KEYS", "*")
    said = b"".join([*keys, *(replicas.redis.do("DUMP", key) or b"" for key in keys)])
    assert len(said) > 500
    for name in NAMES:
        assert name.encode() not in said
    assert b"sk-test" not in said


def test_while_redis_is_frozen_each_replica_keeps_its_share_and_says_so(replicas: Replicas) -> None:
    first = replicas.stacks[0]
    replicas.redis.freeze()
    try:
        until(lambda: replicas.shared(False), 5, "all notice")
        began = time.monotonic()
        assert replicas.asked(CAROL, 15, max_tokens=1) == {200: 30, 429: 15}
        assert time.monotonic() - began < 10
        assert budgets(first, "carol") == {"requests_per_day": 0}
        status, page, _ = fetch(f"{first.admin}/status")
        assert (status, page["sharing"]["is_shared"], page["sharing"]["parts"]) == (200, False, REPLICAS)
        assert page["sharing"]["reason"].startswith("timeout")
        assert fetch(f"{first.admin}/readyz")[0] == 200
        assert "limits are divided among replicas" in first.log()
        assert first.total("tidegate_redis_decided_alone_total") >= 15
        assert first.total("tidegate_redis_calls_total", outcome="timeout") > 0
    finally:
        replicas.redis.thaw()
    until(lambda: replicas.shared(True), 10, "limits are shared again")
    assert replicas.asked(CAROL, 2) == {429: 6}
    assert "limits are shared through Redis" in first.log()
