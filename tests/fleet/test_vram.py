"""What an endpoint's VRAM still has room for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.declare import A, fleet_of, pool, reservation, seen
from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.events import (
    GpuMemoryReported,
    LoadReported,
    RequestEnded,
    RequestReserved,
    ScrapeFailed,
)
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.fleet.vram import UNKNOWN, GpuMemory, Vram, preallocated

GIB = 1 << 30
KV = 131_072
SIZES = st.integers(0, 1 << 45)
TOKENS = st.integers(0, 10**9)


def memory(free: float, total: float = 80.0, seconds: float = 10.0) -> GpuMemory:
    """Return VRAM in GiB."""
    return GpuMemory(int(total * GIB), int(free * GIB), seconds)


def taken(*free: float, loaded: bool = True) -> Vram:
    """Return what is known after so many GiB were reported free, one after the other, at second 0."""
    vram = UNKNOWN
    for gib in free:
        vram = vram.taken(memory(gib), 0, 0.0, loaded=loaded)
    return vram


def test_what_is_free_is_the_room_where_memory_is_taken_as_requests_come() -> None:
    assert taken(8.0).room(0, KV, 1.0, preallocated=False) == 65536
    assert taken(0.8).room(0, KV, 1.0, preallocated=False) == pytest.approx(6553, abs=1)


def test_what_was_sent_since_takes_room_at_once_and_what_ended_gives_none_before_it_is_reported() -> None:
    vram = UNKNOWN.taken(memory(8.0), 1000, 0.0, loaded=True)
    assert vram.room(1000, KV, 1.0, preallocated=False) == 65536
    assert vram.room(3000, KV, 1.0, preallocated=False) == 63536
    assert vram.room(0, KV, 1.0, preallocated=False) == 65536
    assert vram.room(10**9, KV, 1.0, preallocated=False) == 0


def test_a_cache_that_was_set_aside_makes_vram_no_reason_however_full_it_is() -> None:
    assert taken(0.8).room(0, KV, 1.0, preallocated=True) is None
    assert taken(0.8, 0.1).room(0, KV, 1.0, preallocated=True) is None, "workspaces that are made when needed"


def test_growth_beyond_its_start_counts_once_little_is_left() -> None:
    assert taken(8.0, 5.0).room(0, KV, 1.0, preallocated=True) is None, "enough is left"
    assert taken(8.0, 0.8).room(0, KV, 1.0, preallocated=True) == pytest.approx(6553, abs=1)
    assert taken(0.8, 8.0, 0.8).room(0, KV, 1.0, preallocated=True) is not None, "the least is the baseline"


def test_what_is_in_use_while_the_engine_is_not_loaded_is_no_baseline() -> None:
    loading = taken(79.0, loaded=False)
    assert loading.taken(memory(0.8), 0, 1.0, loaded=True).room(0, KV, 1.0, preallocated=True) is None
    again = taken(8.0).unloaded().taken(memory(0.8), 0, 1.0, loaded=True)
    assert again.room(0, KV, 1.0, preallocated=True) is None


def test_a_figure_that_is_too_old_is_unknown() -> None:
    vram = taken(0.1)
    assert vram.room(0, KV, 10.0, preallocated=False) is not None
    assert vram.room(0, KV, 10.1, preallocated=False) is None


@pytest.mark.parametrize("impossible", [GpuMemory(0, 0, 9.0), GpuMemory(5, 6, 9.0), GpuMemory(5, -1, 9.0)])
def test_what_cannot_be_true_says_nothing(impossible: GpuMemory) -> None:
    before = taken(8.0)
    assert before.taken(impossible, 0, 5.0, loaded=True) == before
    assert UNKNOWN.taken(impossible, 0, 5.0, loaded=True) == UNKNOWN


@given(st.lists(st.tuples(SIZES, SIZES, TOKENS, st.booleans())), TOKENS, st.booleans())
def test_room_is_never_below_zero_nor_beyond_what_is_free(
    reports: list[tuple[int, int, int, bool]], own: int, set_aside: bool
) -> None:
    vram = UNKNOWN
    for total, free, tokens, loaded in reports:
        vram = vram.taken(GpuMemory(total, free, 1.0), tokens, 0.0, loaded=loaded)
    room = vram.room(own, KV, 0.5, preallocated=set_aside)
    assert room is None or (vram.memory is not None and 0 <= room <= vram.memory.free_bytes / KV)


@given(SIZES, SIZES, TOKENS)
def test_the_more_is_free_the_more_fits(one: int, other: int, own: int) -> None:
    less, more = sorted((one, other))
    rooms = []
    for free in (less, more):
        vram = UNKNOWN.taken(GpuMemory(1 << 46, free, 1.0), 0, 0.0, loaded=True)
        rooms.append(vram.room(own, KV, 0.5, preallocated=False))
    assert rooms[0] is not None
    assert rooms[1] is not None
    assert rooms[0] <= rooms[1]


def test_an_engine_with_a_figure_of_its_cache_has_set_it_aside() -> None:
    assert preallocated("auto", "vllm", None)
    assert preallocated("auto", "none", 1000.0)
    assert not preallocated("auto", "none", None)
    assert not preallocated("headroom", "vllm", 1000.0)
    assert preallocated("growth", "none", None)


# -- in the fleet


def rented(engine: str = "none", **how: object) -> Fleet:
    spec = pool(A)
    return fleet_of(PoolSpec(spec.name, engine, spec.models, spec.endpoints, **{"vram": "auto", **how}))  # type: ignore[arg-type]


def room(fleet: Fleet, now: float) -> float | None:
    return seen(fleet, A, now).vram_room_tokens


def test_a_report_shows_and_what_is_sent_there_takes_of_it() -> None:
    fleet = rented()
    assert room(fleet, 0.0) is None
    fleet.apply(GpuMemoryReported(A, memory(8.0)), 1.0)
    assert room(fleet, 1.0) == 65536
    fleet.apply(RequestReserved(reservation(prompt=1000, output=536)), 2.0)
    assert room(fleet, 2.0) == 64000
    fleet.apply(RequestEnded("r1"), 3.0)
    assert room(fleet, 3.0) == 65536
    assert room(fleet, 11.5) is None


def test_the_bytes_of_a_token_are_the_pools() -> None:
    fleet = rented(kv_bytes_per_token=2 * KV)
    fleet.apply(GpuMemoryReported(A, memory(8.0)), 1.0)
    assert room(fleet, 1.0) == 32768


def test_vram_may_be_ignored() -> None:
    fleet = rented(vram="ignore")
    fleet.apply(GpuMemoryReported(A, memory(8.0)), 1.0)
    assert room(fleet, 1.0) is None


def test_an_engine_that_starts_anew_has_a_new_baseline() -> None:
    fleet = rented("vllm")
    loaded = LoadReported(A, EngineReport(running=0.0, kv_usage=0.0, generation_tokens_total=100.0))
    fleet.apply(loaded, 1.0)
    fleet.apply(GpuMemoryReported(A, memory(8.0)), 1.1)
    fleet.apply(GpuMemoryReported(A, memory(0.8)), 2.0)
    assert room(fleet, 2.0) == pytest.approx(6553, abs=1)
    # It is killed: nothing is in use, and nobody answers.
    fleet.apply(GpuMemoryReported(A, memory(79.0)), 3.0)
    fleet.apply(ScrapeFailed(A, unreachable=True, reason="refused"), 3.1)
    fleet.apply(GpuMemoryReported(A, memory(40.0)), 4.0)
    fleet.apply(LoadReported(A, EngineReport(running=0.0, kv_usage=0.0, generation_tokens_total=0.0)), 5.0)
    fleet.apply(GpuMemoryReported(A, memory(0.8)), 5.1)
    assert room(fleet, 5.1) is None


def test_what_is_known_goes_into_the_image() -> None:
    fleet, twin = rented(), Fleet(45.0)
    fleet.apply(GpuMemoryReported(A, memory(8.0)), 1.0)
    twin.restore(fleet.image(), 2.0)
    assert room(twin, 2.0) == room(fleet, 2.0) == 65536


def test_a_report_on_an_endpoint_that_is_not_there_changes_nothing() -> None:
    fleet = rented()
    fleet.apply(GpuMemoryReported("10.9.9.9:1", memory(8.0)), 1.0)
    assert room(fleet, 1.0) is None
