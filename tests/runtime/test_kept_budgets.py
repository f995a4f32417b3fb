"""What tenants have used outlives a restart, where there is a folder for it."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.configurations import parsed
from tidegate.runtime import kept_budgets
from tidegate.runtime.kept_budgets import KeptBudgets
from tidegate.scheduling.allowance import Allowance, AllowanceImage, Ask
from tidegate.scheduling.budget import Cost, Limit, Unit, Window

NOON = 1_700_000_000.0
SCOPE = "tenant:a"
LIMITS = {
    SCOPE: [
        Limit(Unit.TOKENS, Window.DAY, 1000),
        Limit(Unit.TOKENS, Window.MINUTE, 600),
        Limit(Unit.REQUESTS, Window.IN_FLIGHT, 5),
    ]
}


class Life:
    """One process that counts, from its start to its end."""

    def __init__(self, folder: Path | None, now: float = NOON) -> None:
        self.now = now
        self.allowance = Allowance(lambda: self.now)
        self.allowance.configure(LIMITS)
        control = {} if folder is None else {"state_dir": str(folder)}
        pools = [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}]
        self.part = KeptBudgets(self.allowance, parsed({"pools": pools, "control": control}))

    def ask(self, number: str, tokens: int) -> bool:
        return self.allowance.reserve(Ask(number, "a", (SCOPE,), Cost(tokens, 0))) is None

    def left(self) -> list[int]:
        return [one.amount for one in self.allowance.left()[SCOPE]]


async def test_what_was_used_is_still_used_after_a_restart_and_what_has_flowed_back_since_has(tmp_path: Path) -> None:
    before = Life(tmp_path)
    async with before.part.listening():
        assert before.ask("r1", 400)
        before.allowance.settle("r1", 300, 50)
        assert before.left() == [650, 250, 5]
    after = Life(tmp_path, NOON + 10)
    async with after.part.listening():
        assert after.left() == [650, 350, 5]


async def test_what_is_in_flight_meanwhile_is_settled_when_its_end_is_told_and_no_longer_counts_as_in_flight(
    tmp_path: Path,
) -> None:
    before = Life(tmp_path)
    async with before.part.listening():
        assert before.ask("r1", 400)
        assert before.ask("r2", 100)
        assert before.left() == [500, 100, 3]
    after = Life(tmp_path)
    async with after.part.listening():
        assert after.left() == [500, 100, 5]
        assert after.ask("r3", 10)
        settled = after.allowance.settle("r1", 50, 50)
        assert settled is not None
        assert settled.tenant == "a"
        assert after.left() == [790, 390, 4]
        assert after.allowance.release("r2")
        assert after.left() == [890, 490, 4]
        assert not after.allowance.release("r2")


async def test_a_request_whose_end_is_never_told_keeps_what_it_took_and_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_budgets, "KEEP_SECONDS", 0.01)
    before = Life(tmp_path)
    async with before.part.listening():
        before.ask("r1", 400)
    after = Life(tmp_path)
    after.part._lease = 0.02
    async with after.part.listening():
        assert len(after.allowance) == 1
        running = asyncio.ensure_future(after.part.run())
        await asyncio.sleep(0.2)
        running.cancel()
        assert len(after.allowance) == 0
        assert after.left() == [600, 200, 5]


async def test_what_is_used_is_written_down_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_budgets, "KEEP_SECONDS", 0.01)
    before, killed = Life(tmp_path), Life(tmp_path)
    async with before.part.listening():
        running = asyncio.ensure_future(before.part.run())
        before.ask("r1", 400)
        await asyncio.sleep(0.2)
        async with killed.part.listening():
            assert killed.left() == [600, 200, 5]
        running.cancel()


async def test_the_day_after_begins_anew_and_a_clock_that_went_back_gives_nothing(tmp_path: Path) -> None:
    async with (before := Life(tmp_path)).part.listening():
        before.ask("r1", 600)
    async with (earlier := Life(tmp_path, NOON - 3600)).part.listening():
        assert earlier.left() == [400, 0, 5]
    async with (tomorrow := Life(tmp_path, NOON + 86_400)).part.listening():
        assert tomorrow.left() == [1000, 600, 5]


async def test_limits_that_changed_meanwhile_count_with_what_was_used(tmp_path: Path) -> None:
    async with (before := Life(tmp_path)).part.listening():
        before.ask("r1", 400)
    after = Life(tmp_path)
    after.allowance.configure({SCOPE: [Limit(Unit.TOKENS, Window.DAY, 500), Limit(Unit.REQUESTS, Window.DAY, 3)]})
    async with after.part.listening():
        assert after.left() == [100, 3]


@pytest.mark.parametrize(
    "content",
    [
        "",
        '["x"]',
        '{"budgets": 1}',
        '[[[["tenant:a", "tokens_per_day", "much", 0, 0]], []], []]',
        "[[[], []], [[1]]]",
        "\x00",
    ],
)
async def test_what_cannot_be_read_is_said_and_budgets_begin_anew(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / kept_budgets.FILE).write_text(content)
    life = Life(tmp_path)
    with caplog.at_level(logging.ERROR):
        async with life.part.listening():
            assert life.left() == [1000, 600, 5]
    assert "budgets begin anew" in caplog.text
    assert json.loads((tmp_path / kept_budgets.FILE).read_text())


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400) | st.none(), st.floats(0, 50_000)), max_size=20),
    st.floats(0, 100_000),
)
def test_a_restart_at_any_moment_changes_nothing_that_is_not_in_flight(
    requests: list[tuple[int, int | None, float]], later: float
) -> None:
    through, number = Life(None), 0
    for tokens, used, pause in requests:
        number += 1
        if through.ask(f"r{number}", tokens) and used is not None:
            through.allowance.settle(f"r{number}", used, 0)
        through.now += pause
    image = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(through.allowance.image()))), AllowanceImage)
    through.now += later
    restarted = Life(None, through.now)
    restarted.allowance.restore(image)
    assert restarted.left()[:2] == through.left()[:2]
    for one in range(1, number + 1):
        through.allowance.settle(f"r{one}", 7, 0)
        restarted.allowance.settle(f"r{one}", 7, 0)
    assert restarted.left() == [*through.left()[:2], 5]


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1e9])
async def test_no_number_makes_a_limit_larger_than_it_is(tmp_path: Path, amount: float) -> None:
    used = [[SCOPE, "tokens_per_day", amount, NOON, 0], ["tenant:gone", "tokens_per_day", 1, NOON, 0]]
    content: Any = [[used, []], []]
    (tmp_path / kept_budgets.FILE).write_text(json.dumps(content))
    async with (life := Life(tmp_path)).part.listening():
        assert life.left()[0] == 1000


async def test_a_folder_that_is_not_there_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_budgets, "KEEP_SECONDS", 0.01)
    life = Life(tmp_path / "none")
    async with life.part.listening():
        running = asyncio.ensure_future(life.part.run())
        for number in range(3):
            life.ask(f"r{number}", 1)
            await asyncio.sleep(0.05)
        running.cancel()
    assert caplog.text.count("budgets not kept") == 1


async def test_without_a_folder_nothing_is_written() -> None:
    life = Life(None)
    async with life.part.listening():
        await life.part.run()
        life.ask("r1", 1)


def test_an_older_state_never_replaces_a_newer_one(tmp_path: Path) -> None:
    life, file = Life(tmp_path), tmp_path / kept_budgets.FILE
    old = life.allowance.image()
    life.ask("r1", 400)
    life.part._write(file, life.allowance.image(), 2)
    newer = file.read_text()
    life.part._write(file, old, 1)
    assert file.read_text() == newer
