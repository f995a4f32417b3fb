"""A watched configuration file."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidegate.config import Config, ConfigError, parse
from tidegate.runtime import reload
from tidegate.runtime.reload import ConfigFile, refuse_fixed

GOOD = b'pools: [{name: one, endpoints: [{address: "127.0.0.1:8001"}]}]\n'
OTHER = b'pools: [{name: two, endpoints: [{address: "127.0.0.1:8002"}]}]\n'
BAD = b"pools: [{name: one, endpoints: []}]\n"


class Watched:
    """A file under watch, and what came of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(GOOD)
        self.file = ConfigFile(path, parse(GOOD, "file"))
        self.applied: list[Config] = []
        self.refused: list[str] = []

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        watch = asyncio.create_task(self.file.watch(self._apply, self.refused.append))
        try:
            yield
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _apply(self, config: Config) -> None:
        self.applied.append(config)

    async def until(self, applied: int, refused: int) -> None:
        async with asyncio.timeout(5):
            while (len(self.applied), len(self.refused)) != (applied, refused):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.02)
    return Watched(tmp_path / "tidegate.yaml")


async def test_a_change_is_taken_over_once(watched: Watched) -> None:
    async with watched.watching():
        watched.path.write_bytes(OTHER)
        await watched.until(1, 0)
        await asyncio.sleep(0.1)
    assert [config.pools[0].name for config in watched.applied] == ["two"]


async def test_an_unchanged_file_is_left_alone(watched: Watched) -> None:
    async with watched.watching():
        watched.path.touch()
        await asyncio.sleep(0.15)
    assert (watched.applied, watched.refused) == ([], [])


async def test_a_bad_file_is_refused_once_and_a_mended_one_is_taken(watched: Watched) -> None:
    async with watched.watching():
        watched.path.write_bytes(BAD)
        await watched.until(0, 1)
        await asyncio.sleep(0.1)
        assert len(watched.refused) == 1
        assert "pools[0].endpoints" in watched.refused[0]
        watched.path.write_bytes(OTHER)
        await watched.until(1, 1)


async def test_a_file_that_goes_back_to_what_is_in_force_is_taken_so_that_the_alarm_ends(watched: Watched) -> None:
    async with watched.watching():
        watched.path.write_bytes(BAD)
        await watched.until(0, 1)
        watched.path.write_bytes(GOOD)
        await watched.until(1, 1)


async def test_asking_reads_the_file_at_once_changed_or_not(watched: Watched) -> None:
    async with watched.watching():
        watched.file.reload()
        await watched.until(1, 0)


async def test_a_file_that_vanishes_is_said_once_and_may_come_back(watched: Watched) -> None:
    async with watched.watching():
        watched.path.unlink()
        await watched.until(0, 1)
        assert "cannot be read" in watched.refused[0]
        await asyncio.sleep(0.1)
        assert len(watched.refused) == 1
        watched.path.write_bytes(OTHER)
        await watched.until(1, 1)


async def test_a_file_that_comes_back_as_it_was_is_taken_so_that_the_alarm_ends(watched: Watched) -> None:
    async with watched.watching():
        watched.path.unlink()
        await watched.until(0, 1)
        watched.path.write_bytes(GOOD)
        await watched.until(1, 1)


async def test_of_a_file_that_is_far_too_large_no_more_is_read_than_needed_to_say_so(watched: Watched) -> None:
    with watched.path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    async with watched.watching():
        await watched.until(0, 1)
    assert "too large" in watched.refused[0]


async def test_a_link_that_is_swapped_is_a_change(watched: Watched, tmp_path: Path) -> None:
    """This is how Kubernetes updates a mounted ConfigMap."""
    (tmp_path / "next.yaml").write_bytes(OTHER)
    async with watched.watching():
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "next.yaml")
        link.replace(watched.path)
        await watched.until(1, 0)


@pytest.mark.parametrize(
    ("change", "section"),
    [
        (b"admin: {port: 9191}", "admin"),
        (b"control: {xds_port: 19000}", "control"),
        (b"decision_log: {file: /tmp/decisions.jsonl}", "decision_log"),
        (b"envoy: {admin_port: 9902}", "envoy"),
        (b"limits: {lease_seconds: 60}", "limits.lease_seconds"),
        (b"scrape: {interval_seconds: 3}", "scrape"),
    ],
)
def test_what_others_were_told_of_cannot_change_while_running(change: bytes, section: str) -> None:
    with pytest.raises(ConfigError, match=f"^the-file: {section}: cannot change while running"):
        refuse_fixed(parse(GOOD, "file"), parse(GOOD + change, "file"), "the-file")


@pytest.mark.parametrize("change", [b"listener: {port: 8081}", b"limits: {max_body_bytes: 2000000}"])
def test_the_rest_can(change: bytes) -> None:
    refuse_fixed(parse(GOOD, "file"), parse(GOOD + change, "file"), "the-file")
