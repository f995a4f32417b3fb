"""What a tenant's request took comes back by whichever way it ends, once: the control plane without what listens."""

import time
from pathlib import Path

import pytest
import yaml

from extproc.errors import ApiError
from tests.at_once import at_once
from tests.runtime.test_tenants import ALICE, SECTIONS
from tests.telemetry.entries import DECISION, entry, usage
from tidegate.config import parse
from tidegate.runtime.alone import Alone
from tidegate.runtime.control_plane import ControlPlane
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.record import parse as read
from tidegate.tokens.count import CountSource, TokenCount


class Standing:
    def __init__(self, folder: Path) -> None:
        file = folder / "tidegate.yaml"
        file.write_text(yaml.safe_dump(SECTIONS))
        self.plane = ControlPlane(parse(file.read_bytes(), str(file)), file)
        self.plane._take_over(self.plane._config)
        assert isinstance(self.plane._deciding, Alone)
        self.desk = self.plane._deciding.decider.desk
        assert self.desk.gate is not None
        self.gate = self.desk.gate

    def decided(self) -> str:
        number = self.desk.new_id("same")
        request = InferenceRequest(number, "chat_completions", "any", TokenCount(10, CountSource.EXACT), 50)
        at_once(self.gate.admit(request, self.gate.identify({"x-api-key": ALICE})))
        assert isinstance(self.desk.decide(request), Decision)
        return number

    def held(self) -> object:
        return self.plane._tenants.describe()["requests_held"]


@pytest.fixture
def standing(tmp_path: Path) -> Standing:
    return Standing(tmp_path)


def test_an_answers_end_settles_it(standing: Standing) -> None:
    number = standing.decided()
    standing.desk.delivered(number)
    assert standing.held() == 1
    ended = read(entry(decision={**DECISION, "reservation": number, "pool": "default"}, tokens=usage(10, 5)))
    standing.plane._request_ended(ended)
    standing.plane._request_ended(ended)
    assert standing.held() == 0
    page = standing.plane._metrics.render().decode()
    assert 'tidegate_tenant_tokens_total{kind="output",tenant="alice"} 5.0' in page


def test_a_request_whose_end_is_never_told_gives_back_when_its_lease_runs_out(standing: Standing) -> None:
    standing.desk.delivered(standing.decided())
    for change in standing.plane._fleet.expire(time.monotonic() + 46):
        standing.plane._tell(change)
    assert standing.held() == 0


def test_a_decision_that_was_not_delivered_gives_back(standing: Standing) -> None:
    standing.desk.abandon(standing.decided())
    assert standing.held() == 0


def test_a_decision_that_envoy_dropped_gives_back_by_the_requests_id(standing: Standing) -> None:
    number = standing.decided()
    standing.desk.delivered(number)
    log = entry(decision=None, destinations=None, served=None, status=0, attempts=0)
    log.request.request_id = "same"
    standing.plane._request_ended(read(log))
    assert standing.held() == 0


def test_two_at_a_time_are_two_however_often_they_end(standing: Standing) -> None:
    for _ in range(3):
        numbers = [standing.decided(), standing.decided()]
        with pytest.raises(ApiError, match="requests in flight: 2"):
            standing.decided()
        for number in numbers:
            standing.desk.abandon(number)
            standing.gate.withdraw(number)
    assert standing.held() == 0


async def test_without_tenants_nobody_is_asked(standing: Standing) -> None:
    nobody = {"pools": SECTIONS["pools"]}
    await standing.plane._reloaded(parse(yaml.safe_dump(nobody).encode(), "tidegate.yaml"))
    assert standing.desk.gate is None
    await standing.plane._reloaded(parse(yaml.safe_dump(SECTIONS).encode(), "tidegate.yaml"))
    assert standing.desk.gate is standing.gate
