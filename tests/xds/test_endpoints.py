import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from protos.endpoint_pb2 import ClusterLoadAssignment
from tests.xds.fleets import pool
from xds.endpoints import assignment, members

A, B, V6 = "10.0.0.1:8000", "10.0.0.2:8000", "[fd00::7]:8000"


def told(name: str, of: dict[str, int], ejected: tuple[str, ...] = ()) -> dict[tuple[str, int], int]:
    built = ClusterLoadAssignment.FromString(assignment(name, members(pool(name, of, ejected))).body)
    assert built.cluster_name == name
    (locality,) = built.endpoints
    return {
        (one.endpoint.address.socket_address.address, one.endpoint.address.socket_address.port_value): (
            one.load_balancing_weight.value
        )
        for one in locality.lb_endpoints
    }


def test_members_are_told_with_their_weights() -> None:
    assert told("p", {A: 1, B: 3}) == {("10.0.0.1", 8000): 1, ("10.0.0.2", 8000): 3}


def test_an_ejected_member_is_not_there_at_all() -> None:
    assert told("p", {A: 1, B: 3}, ejected=(A,)) == {("10.0.0.2", 8000): 3}


def test_an_ipv6_address_loses_its_brackets() -> None:
    assert told("p", {V6: 2}) == {("fd00::7", 8000): 2}


def test_a_pool_without_members_is_an_assignment_without_endpoints() -> None:
    assert told("p", {}) == {}


def test_equal_members_give_the_same_object() -> None:
    assert assignment("p", ((A, 1),)) is assignment("p", ((A, 1),))
    assert assignment("p", ((A, 1),)).version != assignment("p", ((A, 2),)).version


@given(st.dictionaries(st.from_regex(r"10\.0\.0\.[1-9]:80[0-9]{2}", fullmatch=True), st.integers(1, 1000), max_size=8))
def test_every_address_and_weight_survives(of: dict[str, int]) -> None:
    assert {f"{ip}:{port}": weight for (ip, port), weight in told("p", of).items()} == of


def test_an_assignment_that_is_no_longer_the_last_one_is_not_kept() -> None:
    """Endpoints that come and go would otherwise fill the memory, in a large pool."""
    tracemalloc.start()
    try:
        for weight in range(1, 200):
            assignment("p", tuple((f"10.0.{number // 250}.{number % 250}:80", weight) for number in range(500)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
