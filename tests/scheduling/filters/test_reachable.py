"""The filter ``reachable``: only what is known to be dead is left out."""

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.fleet.health import Reachability
from tidegate.scheduling.filters import reachable


def test_only_unreachable_endpoints_are_left_out() -> None:
    kept = reachable.keep(
        ask(),
        [
            candidate(A, reachability=Reachability.UNREACHABLE),
            candidate(B, reachability=Reachability.UNKNOWN),
            candidate(C, reachability=Reachability.REACHABLE),
        ],
    )
    assert [endpoint.address for endpoint in kept] == [B, C]


def test_who_was_tried_and_never_reached_is_left_out() -> None:
    tried = candidate(A, reachability=Reachability.UNREACHED)
    assert reachable.keep(ask(), [tried, candidate(B)]) == [candidate(B)]


def test_when_all_are_unreachable_nobody_is_kept() -> None:
    assert list(reachable.keep(ask(), [candidate(A, reachability=Reachability.UNREACHABLE)])) == []
