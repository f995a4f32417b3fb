"""The file of sampled decisions."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.scheduling.ask import A, ask, candidate
from tidegate.scheduling.explain import Case
from tidegate.scheduling.policy import Policy
from tidegate.telemetry import decision_log
from tidegate.telemetry.decision_log import DecisionLog
from tidegate.telemetry.decision_record import decode


def case(id: str, model: str = "m") -> Case:  # noqa: A002
    return Case(ask(id, model=model), Policy("random"), 1, (candidate(A),), (), (A,))


def ids(file: Path) -> list[str]:
    return [decode(line).request.id for line in file.read_bytes().splitlines(keepends=True)]


def test_records_are_added_to_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    for number in range(2):
        log = DecisionLog(file, 1_000_000)
        log.record(case(f"q{number}"))
        log.flush()
    assert ids(file) == ["q0", "q1"]


def test_the_file_and_the_one_before_it_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    log = DecisionLog(file, 2_000)
    for number in range(30):
        log.record(case(f"q{number:02}"))
    log.flush()
    kept = ids(tmp_path / "decisions.jsonl.1") + ids(file)
    assert kept == [f"q{number:02}" for number in range(30 - len(kept), 30)]
    assert all(path.stat().st_size <= 2_000 for path in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 2


def test_a_record_larger_than_the_bound_has_a_file_of_its_own(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl", 10)
    log.record(case("q0"))
    log.record(case("q1"))
    log.flush()
    assert ids(tmp_path / "decisions.jsonl") == ["q1"]


def test_a_full_queue_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "QUEUE", 2)
    log = DecisionLog(tmp_path / "decisions.jsonl", 1_000_000)
    for number in range(5):
        log.record(case(f"q{number}"))
    log.flush()
    assert ids(tmp_path / "decisions.jsonl") == ["q0", "q1"]
    assert log.dropped == 3


def test_a_disk_that_does_not_take_them_costs_the_records_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = DecisionLog(tmp_path / "missing" / "decisions.jsonl", 1_000_000)
    with caplog.at_level(logging.ERROR, "tidegate.decisions"):
        for _ in range(2):
            log.record(case("q0"))
            log.flush()
    assert log.dropped == 2
    assert [record.getMessage() for record in caplog.records] == ["decisions cannot be recorded"]
    (tmp_path / "missing").mkdir()
    log.record(case("q1"))
    log.flush()
    assert ids(tmp_path / "missing" / "decisions.jsonl") == ["q1"]


def test_what_json_cannot_write_is_dropped(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl", 1_000_000)
    log.record(case("q0", model="\ud83d"))
    log.record(case("q1"))
    log.flush()
    assert ids(tmp_path / "decisions.jsonl") == ["q1"]
    assert log.dropped == 1


async def test_what_is_left_is_written_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "FLUSH_SECONDS", 0.01)
    file = tmp_path / "decisions.jsonl"
    log = DecisionLog(file, 1_000_000)
    running = asyncio.create_task(log.run())
    log.record(case("q0"))
    async with asyncio.timeout(10):
        while not file.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    log.record(case("q1"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ids(file) == ["q0", "q1"]
