"""What those are told who find no place in a queue, or lose theirs."""

import math

import pytest

from tests.scheduling.test_admission import Pool, steady
from tidegate.scheduling.line import QueueSettings, Turnaway, Why
from tidegate.scheduling.queue import Bounds


@pytest.mark.parametrize("bounds", [Bounds(requests=40), Bounds(tokens=40 * 110), Bounds(tenant_requests=40)])
def test_who_finds_the_queue_full_is_not_told_to_come_again_before_what_waits_has_gone(bounds: Bounds) -> None:
    pool = Pool(settings=QueueSettings(bounds=bounds))
    now = steady(pool, 20.0)
    outcomes = [pool.ask(now=now) for _ in range(50)]
    refused = [one for one in outcomes if isinstance(one, Turnaway)]
    pool.ask(now=now, priority=1)
    pool.poll(now)
    shed = [over.outcome for over in pool.over.values() if isinstance(over.outcome, Turnaway)]
    assert len(refused) == 10
    assert len(shed) == (bounds.tenant_requests != 40)
    for one in (*refused, *shed):
        assert one.why in {Why.FULL, Why.TENANT_FULL, Why.SHED}
        # Ten leave a second.
        assert one.estimate == pytest.approx(4.0, rel=0.2)
        assert one.retry_seconds == math.ceil(one.estimate or 0.0)
