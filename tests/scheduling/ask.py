"""Short ways to write down requests, candidates and random sources."""

import itertools
from collections.abc import Iterable

from hypothesis import strategies as st

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared
from tidegate.fleet.health import Reachability
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import Adapters, EndpointView
from tidegate.scheduling.dispatch import Dispatcher
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.tokens.count import CountSource, TokenCount

NAMED = st.frozensets(st.sampled_from(["a", "b", "c"]))
A, B, C, D = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"


class Draws:
    """A random source that gives what it is told, over and over."""

    def __init__(self, numbers: Iterable[float]) -> None:
        """Give ``numbers``, each in [0, 1), in turn."""
        self._numbers = itertools.cycle(numbers)

    def random(self) -> float:
        """Return the next number."""
        return next(self._numbers)


def draws() -> st.SearchStrategy[Draws]:
    """Return a strategy for random sources, the hostile ones included."""
    return st.builds(Draws, st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=30))


def ask(
    id: str = "q",  # noqa: A002
    *,
    prompt: int = 100,
    model: str = "m",
    limit: int | None = None,
    session: str = "",
    adapter: str = "",
    prefix: tuple[int, ...] = (),
) -> InferenceRequest:
    """Return a request; the blocks of its prefix have 16 tokens."""
    return InferenceRequest(
        *(id, "chat_completions", model, TokenCount(prompt, CountSource.EXACT), limit),
        session=session,
        adapter=adapter,
        prefix=prefix,
        block_tokens=16 if prefix else 0,
    )


def candidate(
    address: str,
    *,
    weight: int = 1,
    requests: float = 0.0,
    tokens: float = 0.0,
    reachability: Reachability = Reachability.REACHABLE,
    running: float | None = None,
    waiting: float | None = None,
    kv_usage: float | None = None,
    kv_capacity: float | None = None,
    vram_room: float | None = None,
    cached: int = 0,
    adapters: Adapters | None = None,
    max_running: int | None = None,
    role: str = "both",
    models: tuple[str, ...] = (),
) -> EndpointView:
    """Return an endpoint with this load."""
    return EndpointView(
        address=address,
        weight=weight,
        reachability=reachability,
        ejected=False,
        inflight_requests=int(requests),
        inflight_tokens=int(tokens),
        requests=requests,
        tokens=tokens,
        running=running,
        waiting=waiting,
        kv_usage=kv_usage,
        report_age=None,
        kv_capacity_tokens=kv_capacity,
        role=role,
        models=models,
        max_running=max_running,
        adapters=adapters,
        vram_room_tokens=vram_room,
        cached_tokens=cached,
    )


def candidates() -> st.SearchStrategy[list[EndpointView]]:
    """Return a strategy for one to twelve endpoints of any load and weight."""
    return st.lists(
        st.builds(
            candidate,
            st.integers(1, 40).map(lambda number: f"10.0.0.{number}:8000"),
            weight=st.integers(1, 1000),
            requests=st.floats(0.0, 1e6),
            tokens=st.floats(0.0, 1e12),
            reachability=st.sampled_from(Reachability),
            running=st.none() | st.floats(0.0, 1e6),
            waiting=st.none() | st.floats(0.0, 1e6),
            kv_usage=st.none() | st.floats(0.0, 1.0),
            kv_capacity=st.none() | st.floats(0.0, 1e9),
            vram_room=st.none() | st.floats(0.0, 1e9),
            cached=st.integers(0, 10**7),
            adapters=st.none() | st.builds(Adapters, NAMED, NAMED, st.none() | st.floats(0.0, 8.0)),
            max_running=st.none() | st.integers(1, 100),
        ),
        min_size=1,
        max_size=12,
        unique_by=lambda endpoint: endpoint.address,
    )


def dispatcher(
    policy: str, *addresses: str, rng: Rng, weights: dict[str, int] | None = None, destinations: int = 3
) -> tuple[Fleet, Dispatcher]:
    """Return a fleet of one pool, ``default``, that serves every model, and who decides over it."""
    members = tuple(EndpointSpec(address, (weights or {}).get(address, 1)) for address in addresses)
    return configured(PoolSpec("default", "vllm", ("*",), members), rng=rng, policy=Policy(policy, destinations))


def configured(*pools: PoolSpec, rng: Rng, policy: Policy) -> tuple[Fleet, Dispatcher]:
    """Return a fleet of these pools, and who decides over it, by one policy."""
    declared = PoolsDeclared(pools)
    fleet = Fleet(45.0)
    fleet.apply(declared, 0.0)
    decides = Dispatcher(fleet, rng)
    decides.configure(declared, {pool.name: policy for pool in pools})
    return fleet, decides
