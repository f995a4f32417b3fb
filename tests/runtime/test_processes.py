"""Child processes: started, kept, stopped."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tidegate.runtime import processes
from tidegate.runtime.processes import Child, Children, Program

SLEEPER = Program("sleeper", ["sleep", "60"])
STUBBORN = Program(
    "stubborn",
    [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"],
)


def _ignores_sigterm(child: Child) -> bool:
    status = Path(f"/proc/{child.pid}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> (signal.SIGTERM - 1) & 1)


async def test_stop_ends_every_child() -> None:
    children = Children()
    started = [await children.start(SLEEPER) for _ in range(3)]
    pids = [child.pid for child in started]
    assert all(pid is not None and psutil.pid_exists(pid) for pid in pids)
    await children.stop()
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)


async def test_a_child_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.2)
    child = Child(STUBBORN)
    await child.start()
    async with asyncio.timeout(20):
        while not _ignores_sigterm(child):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await child.stop()
    assert await child.wait() == -signal.SIGKILL


async def test_stopping_a_child_that_is_gone_or_never_was_does_nothing() -> None:
    child = Child(Program("short", ["true"]))
    await child.stop()
    await child.start()
    assert await child.wait() == 0
    await child.stop()


async def test_waiting_for_a_child_that_was_not_started_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="sleeper was not started"):
        await Child(SLEEPER).wait()


async def test_a_kept_child_is_started_again_when_it_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "RESTART_DELAYS", (0.01,))
    children = Children()
    child = await children.start(SLEEPER)
    keeper = asyncio.create_task(children.keep(child))
    try:
        first = child.pid
        assert first is not None
        psutil.Process(first).kill()
        async with asyncio.timeout(5):
            while child.pid == first:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert child.pid is not None
        assert psutil.pid_exists(child.pid)
    finally:
        keeper.cancel()
        await children.stop()


async def test_a_child_that_cannot_be_run_for_a_while_is_tried_until_it_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As while its file is being replaced by another version."""
    monkeypatch.setattr(processes, "RESTART_DELAYS", (0.01,))
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    children = Children()
    child = await children.start(Program("replaced", [str(script)]))
    keeper = asyncio.create_task(children.keep(child))
    try:
        first = child.pid
        assert first is not None
        script.chmod(0o644)
        psutil.Process(first).kill()
        async with asyncio.timeout(5):
            while "cannot be run" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not keeper.done()
        script.chmod(0o755)
        async with asyncio.timeout(5):
            while child.pid == first:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        keeper.cancel()
        await children.stop()


async def test_a_child_does_not_get_the_signals_of_our_terminal() -> None:
    children = Children()
    child = await children.start(SLEEPER)
    try:
        assert child.pid is not None
        assert os.getpgid(child.pid) == child.pid, "a process group of its own"
    finally:
        await children.stop()
