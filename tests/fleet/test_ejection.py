"""Who is ejected is worked out anew whenever it may have changed, and only then."""

from tests.fleet.declare import A, B, C, fleet_of, pool, seen
from tidegate.fleet.events import LoadReported, ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet


def cut_off(fleet: Fleet, *addresses: str) -> None:
    for address in addresses:
        for _ in range(UNREACHABLE_AFTER):
            fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), 1.0)


def out(fleet: Fleet) -> list[str]:
    return [address for address in (A, B, C) if seen(fleet, address, 1.0).ejected]


def test_an_unreachable_endpoint_is_ejected_after_it_was_looked_at_before() -> None:
    fleet = fleet_of(pool(A, B, C))
    assert out(fleet) == []
    cut_off(fleet, A)
    assert out(fleet) == [A]


def test_one_that_comes_back_ends_the_panic_that_spared_the_others() -> None:
    fleet = fleet_of(pool(A, B, C))
    cut_off(fleet, A, B)
    assert out(fleet) == []
    fleet.apply(LoadReported(B, EngineReport()), 1.0)
    assert out(fleet) == [A]


def test_a_first_answer_ejects_nobody_and_brings_nobody_back() -> None:
    fleet = fleet_of(pool(A, B, C))
    cut_off(fleet, A)
    assert out(fleet) == [A]
    fleet.apply(LoadReported(C, EngineReport()), 1.0)
    assert out(fleet) == [A]


def test_an_ejected_endpoint_that_answers_is_back() -> None:
    fleet = fleet_of(pool(A, B, C))
    cut_off(fleet, A)
    assert out(fleet) == [A]
    fleet.apply(LoadReported(A, EngineReport()), 1.0)
    assert out(fleet) == []
