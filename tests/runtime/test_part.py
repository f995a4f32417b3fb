"""What every part of a control plane can leave as it is, and what is asked of one that does not."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests import ports
from tests.configurations import parsed
from tests.telemetry.entries import entry
from tidegate.config import Config
from tidegate.fleet.events import FleetChange, PoolsDeclared
from tidegate.runtime import parts
from tidegate.runtime.control_plane import ControlPlane
from tidegate.runtime.part import Part
from tidegate.telemetry.admin import Page, UnanswerableError
from tidegate.telemetry.record import RequestRecord, parse


class Diary(Part):
    def __init__(self) -> None:
        self.entries: list[str] = []

    def listening(self) -> AbstractAsyncContextManager[None]:
        @asynccontextmanager
        async def open_() -> AsyncIterator[None]:
            self.entries.append("listens")
            yield
            self.entries.append("ends")

        return open_()

    def follow(self, config: Config, declared: PoolsDeclared) -> None:
        self.entries.append(f"follows {len(config.pools)}, {len(declared.pools)}")

    async def run(self) -> None:
        self.entries.append("runs")
        await asyncio.Event().wait()

    def changed(self, change: FleetChange) -> None:
        self.entries.append(type(change).__name__)

    def ended(self, record: RequestRecord) -> None:
        self.entries.append(f"ended {record.status}")

    def pages(self) -> Mapping[str, Page]:
        def content(query: Mapping[str, str]) -> dict[str, object]:
            if "name" not in query:
                raise UnanswerableError(404, "nobody is called so")
            return {"asked": query["name"]}

        return {"/diary": Page("what happened", content)}


async def test_a_part_is_told_of_all_that_happens_and_has_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary()
    monkeypatch.setattr(parts, "made", lambda _: (diary, Part()))
    admin, xds, ext_proc = (ports.free_port() for _ in range(3))
    config = parsed(
        {
            "pools": [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}],
            "admin": {"port": admin},
            "control": {"xds_port": xds, "ext_proc_port": ext_proc},
        }
    )
    (tmp_path / "tidegate.yaml").write_text("")
    plane, stop = ControlPlane(config, tmp_path / "tidegate.yaml"), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plane.run(stop))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{admin}") as session, asyncio.timeout(30):
            while "runs" not in diary.entries:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            plane._request_ended(parse(entry()))
            async with session.get("/diary?name=x") as answer:
                assert await answer.json() == {"asked": "x"}
            async with session.get("/diary") as answer:
                assert (answer.status, await answer.text()) == (404, "nobody is called so\n")
            async with session.get("/") as answer:
                assert "/diary     what happened\n" in await answer.text()
        stop.set()
    assert diary.entries == ["MembershipChanged", "follows 1, 1", "listens", "runs", "ended 200", "ends"]
