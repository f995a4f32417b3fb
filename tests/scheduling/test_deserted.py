"""What is said of those who wait: whose they are, and at the end whether anybody was there who could have had room."""

import pytest

from tests.scheduling.ask import A, B
from tests.scheduling.test_admission import Pool
from tidegate.fleet.events import ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.scheduling.line import MAX_ASKERS, QueueSettings, Turnaway, Waits, Why


@pytest.mark.parametrize(("gone", "deserted"), [((), False), ((A,), False), ((A, B), True)])
def test_who_waited_in_vain_is_told_whether_any_endpoint_is_there(gone: tuple[str, ...], deserted: bool) -> None:
    pool = Pool((A, B), settings=QueueSettings(max_wait_seconds=10.0))
    pool.fill(4)
    pool.ask("waits")
    for address in gone:
        for _ in range(UNREACHABLE_AFTER):
            pool.fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), 1.0)
    assert pool.poll(10.0) == ["waits"]
    outcome = pool.over["waits"].outcome
    assert isinstance(outcome, Turnaway)
    assert (outcome.why, outcome.deserted) == (Why.EXPIRED, deserted)


def test_those_with_the_most_that_waits_are_named() -> None:
    pool = Pool()
    pool.fill(2)
    for number in range(2 * MAX_ASKERS):
        pool.ask(tenant=f"tenant-{number}")
    for _ in range(3):
        pool.ask(tenant="busy", priority=7)
    pool.ask(tenant="night", priority=-1)
    interactive, batch = pool.admission.standings(0.0)
    assert len(interactive.askers) == MAX_ASKERS
    assert interactive.askers[0] == Waits("busy", 7, 3)
    assert batch.askers == (Waits("night", -1, 1),)
