"""Attempts at other endpoints than the one that was picked speak for and against those endpoints too."""

from tests.fleet.declare import A, B, reservation
from tests.fleet.test_left_alone import Pool
from tidegate.fleet.breaker import Circuit
from tidegate.fleet.events import RequestEnded, RequestReserved
from tidegate.fleet.evidence import Ending


def end(pool: Pool, at_pick: Ending, *elsewhere: tuple[str, Ending]) -> None:
    """Have a request end that was sent to ``A``."""
    pool.number += 1
    one = reservation(f"e{pool.number}", address=A, at=pool.now)
    pool.fleet.apply(RequestReserved(one), pool.now)
    pool.fleet.apply(RequestEnded(one.id, ending=at_pick, elsewhere=elsewhere), pool.now)


def test_a_fallback_that_fails_is_left_alone_like_any_other() -> None:
    pool = Pool()
    for _ in range(3):
        end(pool, Ending.BUSY, (B, Ending.SERVER_ERROR))
    assert (pool.circuit(A), pool.circuit(B)) == (Circuit.CLOSED, Circuit.OPEN)


def test_a_fallback_that_serves_is_well() -> None:
    pool = Pool()
    for _ in range(2):
        end(pool, Ending.NEUTRAL, (B, Ending.SERVER_ERROR))
    end(pool, Ending.NEUTRAL, (B, Ending.SERVED))
    for _ in range(2):
        end(pool, Ending.NEUTRAL, (B, Ending.SERVER_ERROR))
    assert pool.circuit(B) is Circuit.CLOSED


def test_an_endpoint_that_is_gone_is_passed_over() -> None:
    pool = Pool()
    end(pool, Ending.SERVED, ("10.9.9.9:1", Ending.RESET))
    assert pool.circuit(A) is Circuit.CLOSED
