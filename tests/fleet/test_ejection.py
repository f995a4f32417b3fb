"""Who is ejected when connections fail, and who comes back when."""

from tests.fleet.declare import A, B, C, fleet_of, pool, seen
from tidegate.fleet.events import LoadReported, ScrapeFailed, TimePassed
from tidegate.fleet.health import RULES, UNREACHABLE_AFTER, HealthStatus
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet

LATER = 1.0 + RULES.hold_seconds


def cut_off(fleet: Fleet, *addresses: str, now: float = 1.0) -> None:
    for address in addresses:
        for _ in range(UNREACHABLE_AFTER):
            fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), now)


def out(fleet: Fleet, now: float = 1.0) -> list[str]:
    fleet.apply(TimePassed(), now)
    return [address for address in (A, B, C) if seen(fleet, address, now).ejected]


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
    assert out(fleet, 1.0 + RULES.calm_seconds) == [A]


def test_a_first_answer_ejects_nobody_and_brings_nobody_back() -> None:
    fleet = fleet_of(pool(A, B, C))
    cut_off(fleet, A)
    assert out(fleet) == [A]
    fleet.apply(LoadReported(C, EngineReport()), 1.0)
    assert out(fleet) == [A]


def test_an_ejected_endpoint_that_answers_is_back_once_it_was_held_and_gets_its_share_little_by_little() -> None:
    fleet = fleet_of(pool(A, B, C))
    cut_off(fleet, A)
    assert out(fleet) == [A]
    fleet.apply(LoadReported(A, EngineReport()), 1.0)
    assert out(fleet, LATER - 0.1) == [A]
    assert out(fleet, LATER) == []
    back = seen(fleet, A, LATER)
    assert (back.health, back.share) == (HealthStatus.WARMING, RULES.least_share)


def test_one_that_stays_away_stays_ejected() -> None:
    fleet = fleet_of(pool(A, B, C))
    cut_off(fleet, A)
    assert all(out(fleet, float(now)) == [A] for now in range(1, 1000, 7))
