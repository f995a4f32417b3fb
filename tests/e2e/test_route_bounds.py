"""Routes that bound their requests in place of what the pool says, with a real Envoy."""

import asyncio
from pathlib import Path

from tests.e2e.holding import BODY, HoldingEngine
from tests.e2e.stack import configuration, up


async def read(port: int, header: str) -> tuple[bytes, bool]:
    """Ask for a stream that the engine begins and does not end; return what came, and whether that was all of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: test", "content-type: application/json"]
        lines += [f"content-length: {len(BODY)}", "connection: close", f"{header}: 1", "", ""]
        writer.write("\r\n".join(lines).encode() + BODY)
        async with asyncio.timeout(30):
            await reader.readuntil(b"first\n\n")
            return await reader.read(), reader.at_eof()
    finally:
        writer.close()


async def test_a_route_ends_what_its_pool_would_let_go_on(tmp_path: Path) -> None:
    engine = HoldingEngine()
    config = configuration([engine.port], engine="none")
    config["routes"] = [
        {"headers": [{"name": "x-hasty", "present": True}], "pool": "default", "timeout_seconds": 1.5},
        {"headers": [{"name": "x-chatty", "present": True}], "pool": "default", "idle_timeout_seconds": 1},
    ]
    config["pools"][0]["name"] = "default"
    with engine.running(), up(tmp_path, config) as stack:
        port = stack.config["listener"]["port"]
        patient = asyncio.create_task(read(port, "x-other"))
        for header in ("x-hasty", "x-chatty"):
            rest, ended = await read(port, header)
            assert (b"[DONE]" in rest, ended) == (False, True)
        assert not patient.done()
        engine.release()
        rest, _ = await patient
        assert b"data: [DONE]" in rest
