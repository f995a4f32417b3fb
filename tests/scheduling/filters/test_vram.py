"""The filter ``vram``: there is room in the VRAM for this request."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.declare import pool
from tests.scheduling.ask import A, B, ask, candidate, candidates, configured
from tidegate.fleet.events import GpuMemoryReported
from tidegate.fleet.view import EndpointView
from tidegate.fleet.vram import GpuMemory
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.filters import needed, vram
from tidegate.scheduling.policy import Policy


def kept(endpoint: EndpointView, prompt: int = 100, output: int = 50) -> bool:
    return bool(vram.keep(ask(prompt=prompt)._replace(output_tokens=output), [endpoint]))


def test_nearly_full_vram_is_unfit_for_a_large_request_and_fit_for_a_small_one() -> None:
    full = candidate(A, vram_room=6500.0)
    assert kept(full, prompt=500)
    assert kept(full, prompt=6450)
    assert not kept(full, prompt=6451)


def test_what_is_cached_of_the_prompt_needs_no_room_of_its_own() -> None:
    assert kept(candidate(A, vram_room=6500.0, cached=14_000), prompt=20_000)


def test_what_is_not_said_is_no_reason() -> None:
    assert kept(candidate(A), prompt=10**9)


def test_it_is_not_asked_where_vram_bounds_nothing() -> None:
    spec = pool(A)
    assert [one.name for one in needed(replace(spec, vram="ignore"), ("vram", "fits"))][-2:] != ["vram", "fits"]
    assert [one.name for one in needed(replace(spec, vram="auto"), ("vram", "fits"))][-2:] == ["vram", "fits"]


@given(candidates(), st.integers(0, 10**6))
def test_whoever_takes_a_request_takes_a_smaller_one(offered: list[EndpointView], prompt: int) -> None:
    large, small = vram.keep(ask(prompt=prompt), offered), vram.keep(ask(prompt=prompt // 2), offered)
    assert {one.address for one in large} <= {one.address for one in small}


def test_where_everybody_is_full_somebody_is_asked_all_the_same() -> None:
    fleet, decides = configured(
        replace(pool(A, B), vram="headroom"), rng=random.Random(1), policy=Policy("round_robin", 3)
    )

    def pick(name: str, prompt: int) -> str:
        decision = decides.decide(ask(id=name, prompt=prompt), 2.0)
        assert isinstance(decision, Decision)
        return decision.addresses[0]

    fleet.apply(GpuMemoryReported(A, GpuMemory(80 << 30, 800 << 20, 9.0)), 1.0)
    assert {pick(f"large-{number}", 20_000) for number in range(4)} == {B}
    assert {pick(f"small-{number}", 100) for number in range(4)} == {A, B}
    fleet.apply(GpuMemoryReported(B, GpuMemory(80 << 30, 0, 9.0)), 1.5)
    assert {pick(f"more-{number}", 20_000) for number in range(4)} == {A, B}
