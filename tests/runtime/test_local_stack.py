"""Starting all parts, without the parts: programs that do nothing stand for them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tidegate.config import Config
from tidegate.runtime import ports
from tidegate.runtime.local_stack import Stack, StartError
from tidegate.runtime.processes import Program

Part = tuple[Program, Callable[[], Awaitable[bool]]]


async def never() -> bool:
    """Hang as a page of a frozen process does."""
    await asyncio.sleep(60)
    return True


class OneProgram(Stack):
    """A stack of one program that never becomes ready."""

    def claims(self) -> list[ports.Claim]:
        return []

    def _parts(self) -> list[Part]:
        return [(Program("part", [str(self.envoy), "60"]), never)]


def stack(program: Path) -> OneProgram:
    config = Config.model_validate({"pools": ({"name": "one", "endpoints": ({"address": "127.0.0.1:1"},)},)})
    return OneProgram(config, Path("none"), "", program, (), (), "text")


async def never_called() -> None:
    raise AssertionError("nothing was ready")


async def test_a_program_that_cannot_be_run_is_one_clear_line(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("no program")
    garbage.chmod(0o755)
    for program, reason in ((tmp_path / "none", "No such file or directory"), (garbage, "Exec format error")):
        with pytest.raises(StartError, match=f"^part cannot be run: {program}: {reason}$"):
            await stack(program).run(asyncio.Event(), asyncio.Event(), never_called)


async def test_a_stop_while_a_part_starts_is_obeyed_at_once_and_nothing_is_called_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    stop = asyncio.Event()
    running = asyncio.create_task(stack(Path("/bin/sleep")).run(stop, asyncio.Event(), never_called))
    async with asyncio.timeout(5):
        while "started" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    stop.set()
    async with asyncio.timeout(1):
        await running
    assert "ready" not in caplog.text
    assert "ready" not in caplog.text
