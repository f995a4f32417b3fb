"""Endpoints that outlive a restart, while their directory is away."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.configurations import parsed
from tests.runtime.test_discovered import Scripted
from tidegate.config import Config
from tidegate.discovery.contract import Found
from tidegate.fleet.endpoint import EndpointSpec
from tidegate.runtime import kept, kept_endpoints
from tidegate.runtime.discovered import Discovered
from tidegate.runtime.kept_endpoints import FILE, KeptEndpoints, KeptPool, remembered

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


def config(folder: Path | None, **discovery: Any) -> Config:
    source = discovery or {"file": {"path": "/endpoints.yaml"}}
    state = {} if folder is None else {"control": {"state_dir": str(folder)}}
    return parsed({"pools": [{"name": "default", "models": ["m"], "discovery": source}], **state})


def following(at: Config) -> tuple[Discovered, Scripted]:
    source = Scripted()
    kept = remembered(at.control.state_dir)
    before = {(name, pool.kind): pool.found for name, pool in kept.items()}
    return Discovered(lambda: None, make=lambda *_: source, remembered=before), source


def addresses(discovered: Discovered, at: Config) -> list[str]:
    return [endpoint.address for pool in discovered.declared(at).pools for endpoint in pool.endpoints]


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_was_found_goes_on_after_a_restart_until_the_source_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_endpoints, "KEEP_SECONDS", 0.01)
    at = config(tmp_path)
    first, source = following(at)
    async with first.running(), asyncio.TaskGroup() as tasks:
        part = KeptEndpoints(first, at)
        first.follow(at)
        writing = tasks.create_task(part.run())
        await until(lambda: source.tell)
        assert not first.is_whole
        source.says(A, B)
        part.follow(at, first.declared(at))
        await until((tmp_path / FILE).exists)
        writing.cancel()
    assert [found.endpoint.address for found in remembered(str(tmp_path))["default"].found] == [A, B]

    second, source = following(at)
    async with second.running():
        second.follow(at)
        assert second.is_whole
        assert second.unready()
        assert addresses(second, at) == [A, B]
        await until(lambda: source.tell)
        source.says(B)
        await until(lambda: addresses(second, at) == [B])
        assert not second.unready()


async def test_nothing_is_written_before_every_source_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_endpoints, "KEEP_SECONDS", 0.01)
    at = config(tmp_path)
    (tmp_path / FILE).write_text(json.dumps({"default": {"kind": "file", "found": [[{"address": A}, ""]]}}))
    discovered, _ = following(at)
    async with discovered.running(), asyncio.TaskGroup() as tasks:
        part = KeptEndpoints(discovered, at)
        discovered.follow(at)
        part.follow(at, discovered.declared(at))
        writing = tasks.create_task(part.run())
        await asyncio.sleep(0.1)
        writing.cancel()
    assert addresses(discovered, at) == [A]
    assert json.loads((tmp_path / FILE).read_text())["default"]["found"] == [[{"address": A}, ""]]


def test_a_source_of_another_kind_begins_anew(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"default": {"kind": "dns", "found": [[{"address": A}, ""]]}}))
    at = config(tmp_path)
    discovered, _ = following(at)
    discovered.follow(at)
    assert addresses(discovered, at) == []
    assert not discovered.is_whole


def test_all_that_is_known_of_an_endpoint_is_kept(tmp_path: Path) -> None:
    spec = EndpointSpec(
        A, weight=3, role="decode", models=("a", "b"), max_running=7, gpu="h100", node="n1", gpus=("x",)
    )
    pool = KeptPool("file", (Found(spec, "sglang"),))
    kept.write(tmp_path / FILE, msgspec.to_builtins({"default": pool}))
    assert remembered(str(tmp_path)) == {"default": pool}


@pytest.mark.parametrize("text", ["", "[]", '{"default": {}}', '{"default": {"kind": "file", "found": [["x", ""]]}}'])
def test_a_file_that_cannot_be_read_is_said_and_nothing_is_remembered(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    assert remembered(str(tmp_path)) == {}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_without_a_folder_or_a_file_nothing_is_remembered(tmp_path: Path) -> None:
    assert remembered(None) == {}
    assert remembered(str(tmp_path)) == {}


async def test_without_a_folder_nothing_is_written() -> None:
    at = config(None)
    discovered, _ = following(at)
    await asyncio.wait_for(KeptEndpoints(discovered, at).run(), 5)


async def test_a_folder_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept_endpoints, "KEEP_SECONDS", 0.01)
    at = config(tmp_path / "gone")
    discovered, source = following(at)
    async with discovered.running(), asyncio.TaskGroup() as tasks:
        part = KeptEndpoints(discovered, at)
        discovered.follow(at)
        writing = tasks.create_task(part.run())
        await until(lambda: source.tell)
        source.says(A)
        part.follow(at, discovered.declared(at))
        await until(lambda: any("endpoints not kept" in record.getMessage() for record in caplog.records))
        writing.cancel()
