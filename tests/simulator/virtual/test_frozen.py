"""An engine that stood still, or was slow, and no longer is: it gets its share again; and one that is slow does not."""

from collections import Counter

import pytest

from tests.simulator.virtual.test_spread import equal, requests
from tidegate.fleet.events import EvidenceReported, HealthChanged
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.health import HealthStatus
from tidegate.simulator.virtual.conditions import Conditions, Fault, FaultKind
from tidegate.simulator.virtual.fleet import address
from tidegate.simulator.virtual.simulation import Simulation

ILL, OTHER = address(0), address(1)
STRUCK, FROZEN = 40.0, 30.0
NOTICED = 10.0
"""Seconds after which it is seen that nothing moves there, as live by default, more or less."""


class Run(Simulation):
    """Two equal engines, one of which something befalls, and whose standing still is said if it is ``noticed``."""

    def __init__(self, rate: float, seconds: float, fault: Fault, seed: int, *, noticed: bool) -> None:
        workload = requests(rate, seed, count=round(rate * seconds))
        super().__init__(equal(2), workload, "predicted_latency", seed, Conditions(faults=(fault,)))
        self.healthy_at = fault.at + fault.seconds
        apply = self._fleet.apply

        def heard(event, now):  # type: ignore[no-untyped-def]
            changes = apply(event, now)
            for change in changes:
                if isinstance(change, HealthChanged) and change.address == ILL:
                    self.healthy_at = now if change.health.status is HealthStatus.HEALTHY else float("inf")
            return changes

        self._fleet.apply = heard  # type: ignore[method-assign]
        if noticed:
            stands = Evidence("progress", Verdict.FAILED, ("no_progress",))
            self._at(fault.at + NOTICED, self._say, stands)
            self._at(fault.at + fault.seconds + 1.0, self._say, Evidence("progress", Verdict.SOUND))

    def _say(self, evidence: Evidence) -> None:
        self._fleet.apply(EvidenceReported(ILL, evidence), self.now)

    def share(self, after: float, before: float) -> float:
        """Return what it got of the requests of a time, as a multiple of an equal share."""
        served = Counter(one.endpoint for one in self._outcomes if after <= one.arrived < before)
        return 2 * served[ILL] / served.total()


@pytest.mark.parametrize("rate", [4.0, 20.0, 60.0])
@pytest.mark.parametrize("seed", range(1, 4))
def test_one_that_was_frozen_and_ejected_has_an_equal_share_within_a_minute(rate: float, seed: int) -> None:
    run = Run(rate, 240.0, Fault(FaultKind.FREEZE, 0, STRUCK, FROZEN), seed, noticed=True)
    run.run()
    assert STRUCK + FROZEN < run.healthy_at < 150.0
    assert run.share(STRUCK + NOTICED + 1.0, STRUCK + FROZEN) == 0.0
    assert run.share(run.healthy_at + 60.0, 240.0) == pytest.approx(1.0, abs=0.25)
    assert run.share(run.healthy_at + 30.0, run.healthy_at + 60.0) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("kind", [FaultKind.FREEZE, FaultKind.SLOW])
@pytest.mark.parametrize("rate", [4.0, 20.0])
def test_one_of_which_nobody_noticed_more_than_slow_requests_is_tried_until_it_has_its_share(
    rate: float, kind: FaultKind
) -> None:
    run = Run(rate, 400.0, Fault(kind, 0, STRUCK, FROZEN), 1, noticed=False)
    run.run()
    assert run.share(STRUCK + 5.0, STRUCK + FROZEN) < 0.5
    assert run.share(250.0, 400.0) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("rate", [0.05, 1.0, 4.0, 20.0])
def test_one_that_is_ten_times_slower_is_tried_with_no_more_than_one_request_in_a_hundred(rate: float) -> None:
    seconds = max(600.0, 1000.0 / rate)
    run = Run(rate, seconds, Fault(FaultKind.SLOW, 0, 0.0, 1e9), 2, noticed=False)
    run.run()
    got = run.share(seconds / 3, seconds) / 2
    assert got <= 0.012
