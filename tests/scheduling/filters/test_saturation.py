"""The filter ``saturation``."""

import pytest

from tests.scheduling.ask import A, ask, candidate
from tidegate.scheduling.filters import saturation


@pytest.mark.parametrize(
    ("waiting", "kv_usage", "kept"),
    # Cases of the Go endpoint picker's own test of its detector with a headroom of a fifth.
    [
        (1, 0.1, True),
        (4, 0.7, True),
        (5, 0.8, True),
        (5, 0.9, True),
        (7, 0.1, False),
        (1, 0.97, False),
        (6, 0.96, True),
    ],
)
def test_long_queues_and_full_caches_are_left_out(waiting: float, kv_usage: float, kept: bool) -> None:
    endpoint = candidate(A, waiting=waiting, kv_usage=kv_usage)
    assert bool(saturation.keep(ask(), [endpoint])) is kept


def test_what_is_not_said_is_no_reason() -> None:
    assert list(saturation.keep(ask(), [candidate(A)])) == [candidate(A)]
    assert list(saturation.keep(ask(), [candidate(A, waiting=9.0)])) == []
