"""The filter ``role``: whoever only prefills is not asked for answers."""

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.scheduling.filters import role


def test_endpoints_that_only_prefill_are_left_out() -> None:
    offered = [candidate(A, role="prefill"), candidate(B, role="decode"), candidate(C, role="both")]
    assert [endpoint.address for endpoint in role.keep(ask(), offered)] == [B, C]


def test_it_cannot_be_passed_over() -> None:
    assert role.HARD
