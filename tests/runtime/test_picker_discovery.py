"""An endpoint picker whose endpoints are discovered."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.ports import free_port
from tidegate.config import parse
from tidegate.fleet.endpoint import EndpointSpec
from tidegate.runtime import decider
from tidegate.runtime.picker import PickerPlane


async def test_a_picker_follows_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, file = tmp_path / "endpoints.yaml", tmp_path / "tidegate.yaml"
    listing.write_text('- {address: "10.0.0.1:1"}')
    file.write_text(
        f"admin: {{port: {free_port()}}}\ncontrol: {{ext_proc_port: {free_port()}}}\n"
        f"pools: [{{name: one, engine: none, discovery: {{file: {{path: {listing}}}}}}}]\n"
    )
    tested, stop = PickerPlane(parse(file.read_bytes(), str(file)), file), asyncio.Event()
    monkeypatch.setattr(tested._decider.counter, "warm", lambda: None)
    monkeypatch.setattr(decider, "_spare_the_collector", lambda: None)

    def known() -> list[str]:
        return [one.address for pool in tested._fleet.views(time.monotonic()) for one in pool.endpoints]

    running = asyncio.create_task(tested.run(stop))
    try:
        for address in ("10.0.0.1:1", "10.0.0.2:1"):
            listing.write_text(f'- {{address: "{address}"}}')
            async with asyncio.timeout(10):
                while known() != [address]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        assert tested._fleet.members("one") == (EndpointSpec("10.0.0.2:1"),)
        assert tested._unready == set()
        assert b"tidegate_discovery_endpoints" in tested._metrics.render()
    finally:
        stop.set()
        await asyncio.wait_for(running, 10)
