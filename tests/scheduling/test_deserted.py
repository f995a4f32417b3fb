"""What is said of a wait that is over: whether anybody was there who could have had room."""

import pytest

from tests.scheduling.ask import A, B
from tests.scheduling.test_admission import Pool
from tidegate.fleet.events import ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.scheduling.line import QueueSettings, Turnaway, Why


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
