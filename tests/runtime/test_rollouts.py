"""Rollouts between what ends and what is decided by, without anything that listens."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.configurations import parsed
from tests.telemetry.entries import DECISION, entry
from tidegate.config import Config
from tidegate.fleet.events import PoolsDeclared
from tidegate.runtime.rollouts import FILE, Rollouts
from tidegate.telemetry.admin import UnanswerableError
from tidegate.telemetry.record import RequestRecord, parse
from tidegate.telemetry.rollouts import RolloutFigures


def config(**rollout: Any) -> Config:
    pools = [
        {"name": name, "engine": "none", "models": [f"only-{name}"], "endpoints": [{"address": f"127.0.0.1:{at}"}]}
        for at, name in enumerate(("canary", "stable"), 1)
    ]
    plan = {"canary": "canary", "steps": [10, 50], "pause_seconds": 30, "min_requests": 3, **rollout}
    split = [{"pool": "canary"}, {"pool": "stable"}]
    return parsed({"pools": pools, "routes": [{"name": "chat", "model": "m", "split": split, "rollout": plan}]})


class Made:
    def __init__(self, folder: Path | None = None, **rollout: Any) -> None:
        self.now = 0.0
        self.asked = 0
        self.registry = CollectorRegistry()
        self.rollouts = Rollouts(self.again, lambda: self.now, RolloutFigures(self.registry), folder)
        self.config = config(**rollout)
        self.rollouts.adjusted(self.config)
        self.rollouts.follow(self.config, PoolsDeclared(()))

    def again(self) -> None:
        self.asked += 1

    def weights(self) -> list[float]:
        return [round(side.weight, 9) for side in self.rollouts.adjusted(self.config).routes[0].split]

    def end(self, pool: str, status: int = 200, times: int = 3, **fields: Any) -> None:
        for _ in range(times):
            self.rollouts.ended(record(pool, status, **fields))

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.rollouts.judge()

    def page(self) -> dict[str, Any]:
        (page,) = json.loads(json.dumps(self.rollouts.describe()))["rollouts"]
        assert isinstance(page, dict)
        return page


def record(pool: str, status: int = 200, **fields: Any) -> RequestRecord:
    return parse(entry(decision={**DECISION, "pool": pool}, status=status, **fields))


def test_shares_follow_the_steps_and_are_taken_over() -> None:
    made = Made()
    assert made.weights() == [0.1, 0.9]
    made.end("canary")
    made.after(29)
    assert (made.weights(), made.asked) == ([0.1, 0.9], 0)
    made.after(1)
    assert (made.weights(), made.asked) == ([0.5, 0.5], 1)
    made.end("canary")
    made.after(30)
    assert (made.weights(), made.asked) == ([1.0, 0.0], 2)


def test_a_canary_that_fails_gets_nothing_any_more(caplog: pytest.LogCaptureFixture) -> None:
    made = Made()
    made.end("stable", times=30)
    made.end("canary", 500)
    made.after(1)
    assert (made.weights(), made.asked) == ([0.0, 1.0], 1)
    assert made.page()["reason"] == "3 of 3 requests failed, 0 of 30 on the stable side"
    assert any("rollout rolled_back" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("status", [400, 404, 429])
def test_what_clients_do_wrong_says_nothing_of_the_canary(status: int) -> None:
    made = Made()
    made.end("canary", status, times=10, attempts=1)
    made.after(1)
    failures = made.page()["canary"]["failures"]
    assert failures == (10 if status == 429 else 0)


def test_other_pools_say_nothing() -> None:
    made = Made()
    made.end("else", 500, times=10)
    made.after(1)
    assert (made.page()["canary"]["requests"], made.page()["stable"]["requests"]) == (0, 0)


def test_a_hand_pauses_promotes_and_rolls_back() -> None:
    made = Made()
    assert made.rollouts.act({"route": "chat", "action": "pause"})["phase"] == "paused"
    assert made.rollouts.act({"route": "chat", "action": "promote"})["share_percent"] == 50
    assert made.rollouts.act({"route": "chat", "action": "rollback"})["phase"] == "rolled_back"
    assert (made.weights(), made.asked) == ([0.0, 1.0], 3)


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"route": "x", "action": "pause"}, 404, "there is no rollout 'x': chat"),
        ({"route": "chat", "action": "stop"}, 400, "expected one of pause, resume, promote, rollback, not 'stop'"),
        ({"route": "chat"}, 400, "expected one of pause, resume, promote, rollback, not ''"),
    ],
)
def test_what_cannot_be_done_is_said(asked: dict[str, str], status: int, said: str) -> None:
    with pytest.raises(UnanswerableError, match=said) as caught:
        Made().rollouts.act(asked)
    assert caught.value.status == status


def test_what_is_done_already_is_said() -> None:
    made = Made()
    made.rollouts.act({"route": "chat", "action": "rollback"})
    with pytest.raises(UnanswerableError, match="'chat' is rolled_back") as caught:
        made.rollouts.act({"route": "chat", "action": "rollback"})
    assert caught.value.status == 409


def test_it_says_whether_what_was_done_by_hand_outlives_a_restart(tmp_path: Path) -> None:
    assert Made(tmp_path).rollouts.act({"route": "chat", "action": "pause"})["kept"] is True
    assert Made().rollouts.act({"route": "chat", "action": "pause"})["kept"] is False
    assert Made(tmp_path / "none").rollouts.act({"route": "chat", "action": "pause"})["kept"] is False


def test_a_step_that_cannot_be_is_the_nearest_that_can(tmp_path: Path) -> None:
    content = {"chat": {"between": "canary stable", "phase": "advancing", "step": -7, "reason": ""}}
    (tmp_path / FILE).write_text(json.dumps(content))
    assert Made(tmp_path).weights() == [0.1, 0.9]


def test_it_goes_on_after_a_restart_where_it_stood(tmp_path: Path) -> None:
    Made(tmp_path).rollouts.act({"route": "chat", "action": "rollback"})
    again = Made(tmp_path)
    assert (again.weights(), again.page()["phase"], again.page()["reason"]) == ([0.0, 1.0], "rolled_back", "by hand")


def test_another_canary_begins_anew_after_a_restart(tmp_path: Path) -> None:
    Made(tmp_path).rollouts.act({"route": "chat", "action": "promote"})
    assert Made(tmp_path, canary="stable").page()["step"] == 1


@pytest.mark.parametrize("kept", ["", "[]", '{"chat": {}}', '{"chat": {"between": "a b", "phase": "x", "step": 0}}'])
def test_a_file_that_cannot_be_read_is_said_and_begins_anew(
    tmp_path: Path, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(kept)
    made = Made(tmp_path)
    assert made.weights() == [0.1, 0.9]
    assert (kept == "[]") or any("not read" in record.getMessage() for record in caplog.records)


def test_a_folder_that_is_not_there_is_said_and_the_rollout_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Made(tmp_path / "none")
    made.rollouts.act({"route": "chat", "action": "promote"})
    assert made.weights() == [0.5, 0.5]
    assert any("not kept" in record.getMessage() for record in caplog.records)


def test_a_changed_plan_keeps_the_step_and_a_removed_rollout_goes() -> None:
    made = Made()
    made.rollouts.act({"route": "chat", "action": "promote"})
    made.config = config(steps=[10, 60, 90])
    assert made.weights() == [0.6, 0.4]
    made.config = config().model_copy(update={"routes": ()})
    assert made.rollouts.adjusted(made.config) is made.config
    assert made.rollouts.describe() == {"rollouts": []}


def test_metrics_say_share_and_phase() -> None:
    made = Made()
    made.rollouts.act({"route": "chat", "action": "rollback"})
    text = generate_latest(made.registry).decode()
    assert 'tidegate_rollout_share{route="chat"} 0.0' in text
    assert 'tidegate_rollout_phase{phase="rolled_back",route="chat"} 1.0' in text
    assert 'tidegate_rollout_phase{phase="advancing",route="chat"} 0.0' in text
    assert 'tidegate_rollout_changes_total{phase="rolled_back",route="chat"} 1.0' in text
    made.rollouts.adjusted(none := made.config.model_copy(update={"routes": ()}))
    made.rollouts.follow(none, PoolsDeclared(()))
    assert 'route="chat"' not in generate_latest(made.registry).decode()
