"""The one contract of all sources: a complete pass first, then changes; errors take nothing away; and who is let in."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.configurations import parsed
from tests.discovery.directories import ALL, Directory
from tests.discovery.told import found, telling
from tidegate.config import Config
from tidegate.config_discovery import Discovery
from tidegate.discovery import consul, file, kubernetes
from tidegate.discovery.contract import Backoff, Failed, Removed, Reset, Upserted
from tidegate.discovery.sources import source
from tidegate.runtime.discovered import Discovered

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
STRANGE = ("127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1")
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "failed", lambda _: 0.05)
    monkeypatch.setattr(consul, "SPACING_SECONDS", 0.05)
    monkeypatch.setattr(kubernetes, "SPACING_SECONDS", 0.05)
    monkeypatch.setattr(file, "POLL_SECONDS", 0.05)


@pytest.fixture(params=ALL, ids=lambda made: made.__name__)
async def directory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Directory]:
    made: Directory = request.param(tmp_path)
    async with made.running():
        yield made


def places(*hosts: str) -> set[str]:
    return {f"{host}:8000" for host in hosts}


async def test_a_source_tells_all_there_is_then_what_changes_and_errors_take_nothing_away(
    directory: Directory,
) -> None:
    directory.fail(fails=True)
    directory.say(A, B)
    tested = source(Discovery.model_validate_json(json.dumps(directory.settings)), random.Random(1))
    async with telling(tested) as told:
        await told.until(lambda: bool(told.failures), PATIENCE)
        assert all(isinstance(news, Failed) for news in told.news), "nothing is said before a complete pass"
        directory.fail(fails=False)
        await told.until(lambda: told.passes > 0, PATIENCE)
        about_endpoints = [news for news in told.news if isinstance(news, Reset | Upserted | Removed)]
        assert isinstance(about_endpoints[0], Reset)
        assert told.addresses == places(A, B)
        directory.say(A, B, C)
        await told.until(lambda: told.addresses == places(A, B, C), PATIENCE)
        directory.say(A, C)
        await told.until(lambda: told.addresses == places(A, C), PATIENCE)
        failures = len(told.failures)
        directory.fail(fails=True)
        await told.until(lambda: len(told.failures) > failures, PATIENCE)
        assert told.addresses == places(A, C)
        directory.fail(fails=False)
        directory.say(A, B, C)
        await told.until(lambda: told.addresses == places(A, B, C), PATIENCE)
        passes = told.passes
        told.asked.set()
        await told.until(lambda: told.passes > passes, PATIENCE)


async def test_what_follows_for_the_pool_is_the_same_for_all(directory: Directory) -> None:
    directory.say(A, B, C)
    tested, config = Discovered(lambda: None), pool(directory)
    async with tested.running():
        tested.follow(config)
        assert tested.unready(), "it is not ready before it was read"
        await tested.synced(PATIENCE)
        assert not tested.unready()
        assert declared(tested, config) == places(A, B, C)
        directory.fail(fails=True)
        await until(lambda: stage(tested) == "failing")
        assert declared(tested, config) == places(A, B, C)
        assert not tested.unready()
        directory.fail(fails=False)
        directory.say(A, B)
        await until(lambda: declared(tested, config) == places(A, B))
        assert stage(tested) == "good"


async def test_no_directory_can_point_requests_at_this_machine_or_a_metadata_service(directory: Directory) -> None:
    directory.say(A, *STRANGE)
    tested, config = Discovered(lambda: None), pool(directory)
    async with tested.running():
        tested.follow(config)
        await tested.synced(PATIENCE)
        assert declared(tested, config) == places(A)
        allowed = pool(directory, allow=["127.0.0.0/8"])
        tested.follow(allowed)
        assert declared(tested, allowed) == set(), "what was known before is held to the networks of now"
        await tested.synced(PATIENCE)
        assert declared(tested, allowed) == places("127.0.0.1")


def test_nor_can_what_was_kept_over_a_restart(tmp_path: Path) -> None:
    hosts = (A, "127.0.0.1", "169.254.169.254")
    remembered = {("p", "file"): tuple(found(f"{host}:8000") for host in hosts)}
    tested = Discovered(lambda: None, remembered=remembered)
    config = parsed({"pools": [{"name": "p", "discovery": {"file": {"path": str(tmp_path / "none")}}}]})
    tested.follow(config)
    assert declared(tested, config) == places(A)


def test_what_the_configuration_lists_itself_is_configured() -> None:
    config = parsed({"pools": [{"name": "p", "endpoints": [{"address": "127.0.0.1:8000"}]}]})
    tested = Discovered(lambda: None)
    tested.follow(config)
    assert declared(tested, config) == places("127.0.0.1")


def pool(directory: Directory, **more: Any) -> Config:
    discovery = {**directory.settings, "linger_seconds": 0.0, "hold_seconds": 0.0, **more}
    return parsed({"pools": [{"name": "p", "discovery": discovery}]})


def declared(tested: Discovered, config: Config) -> set[str]:
    return {endpoint.address for one in tested.declared(config).pools for endpoint in one.endpoints}


def stage(tested: Discovered) -> str:
    (report,) = tested.reports()
    return report.stage


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
