import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, Draws, ask, dispatcher
from tidegate.fleet.events import ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.scheduling.dispatch import Decision, Refusal, RefusalReason
from tidegate.scheduling.subset import Subset

RNG = Draws([0.5])


@pytest.mark.parametrize(
    ("name", "address", "is_in"),
    [
        ("10.0.0.1:8000", "10.0.0.1:8000", True),
        ("10.0.0.1:8000", "10.0.0.1:8001", False),
        ("10.0.0.1", "10.0.0.1:8001", True),
        ("10.0.0.1", "10.0.0.11:8001", False),
        (" 10.0.0.1:8000 ", "10.0.0.1:8000", True),
        ("[fd00:0:0::1]:8000", "[fd00::1]:8000", True),
        ("[fd00::1]:8000", "[fd00::1]:8001", False),
        ("fd00::1", "[fd00::1]:8001", True),
        ("[fd00::1]", "[fd00::1]:8001", True),
        ("::ffff:10.0.0.1", "10.0.0.1:8000", True),
        ("10.0.0.1:0", "10.0.0.1:8000", False),
        ("10.0.0.1:8000/", "10.0.0.1:8000", False),
        ("engine:8000", "10.0.0.1:8000", False),
        ("", "10.0.0.1:8000", False),
    ],
)
def test_an_endpoint_is_known_by_its_place_or_by_its_host(name: str, address: str, is_in: bool) -> None:
    assert (address in Subset.of([name])) is is_in


def test_nobody_is_in_the_subset_of_nobody() -> None:
    assert "10.0.0.1:8000" not in Subset.of([])


@given(st.lists(st.text(max_size=20)))
def test_no_name_is_an_error(names: list[str]) -> None:
    assert "10.0.0.1:8000" not in Subset.of(name for name in names if "10.0.0.1" not in name)


def test_only_the_endpoints_of_every_subset_are_named() -> None:
    _, decides = dispatcher("round_robin", A, B, C, rng=RNG)
    among = (Subset.of([C, B]), Subset.of([A, C]))
    decision = decides.decide(ask()._replace(among=among), 0.0)
    assert isinstance(decision, Decision)
    assert decision.addresses == (C,)


@pytest.mark.parametrize("names", [[], ["10.9.9.9:1"]])
def test_a_request_that_may_go_to_none_of_the_endpoints_goes_nowhere(names: list[str]) -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=RNG)
    refusal = decides.decide(ask()._replace(among=(Subset.of(names),)), 0.0)
    assert refusal == Refusal(RefusalReason.NO_ENDPOINTS, "default")
    assert len(fleet.ledger) == 0


def test_a_subset_holds_when_all_in_it_are_doubtful() -> None:
    fleet, decides = dispatcher("round_robin", A, B, C, rng=RNG)
    for address in (A, B):  # too many for any of them to be ejected
        for _ in range(UNREACHABLE_AFTER):
            fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), 0.0)
    decision = decides.decide(ask()._replace(among=(Subset.of([A]),)), 0.0)
    assert isinstance(decision, Decision)
    assert decision.addresses == (A,)


def test_a_request_that_may_go_to_ejected_endpoints_alone_goes_nowhere() -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=RNG)
    for _ in range(UNREACHABLE_AFTER):
        fleet.apply(ScrapeFailed(A, unreachable=True, reason="refused"), 0.0)
    refusal = decides.decide(ask()._replace(among=(Subset.of([A]),)), 0.0)
    assert refusal == Refusal(RefusalReason.NO_ENDPOINTS, "default")
