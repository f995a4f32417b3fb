"""One question to one engine."""

import asyncio
import json
from typing import Any

from tests.engines.engine_server import Connection, Handler, answering, serving
from tests.ports import free_port
from tidegate.config_checks import Check
from tidegate.engines import fetch
from tidegate.engines.check import NOTHING_KNOWN, Found, Standing, Subject, came_to_nothing
from tidegate.engines.checks import find
from tidegate.engines.outcome import ScrapeError


def check(**given: Any) -> Check:
    """Return a check with short times."""
    return Check.model_validate({"timeout_seconds": 0.5, **given})


async def ask(
    settings: Check,
    address: str,
    *,
    engine: str = "vllm",
    models: tuple[str, ...] = (),
    standing: Standing = NOTHING_KNOWN,
) -> Found:
    """Return what the check finds at ``address``."""
    subject = Subject("default", address, engine, models, settings, standing)
    async with fetch.open_session() as session:
        try:
            return await find(settings.name)(subject, session)
        except ScrapeError as error:
            return came_to_nothing(error)


async def asked(settings: Check, handler: Handler, **more: Any) -> tuple[Found, list[str]]:
    """Return what the check finds of an engine that answers by ``handler``, and the first lines that this got."""
    async with serving(handler) as server:
        found = await ask(settings, server.address, **more)
        return found, [head.split(" HTTP")[0] for head in server.heads]


async def unserved(settings: Check) -> Found:
    """Return what it finds where nobody listens."""
    return await ask(settings, f"127.0.0.1:{free_port()}")


def saying(answer: object, status: str = "200 OK") -> Handler:
    """Return a handler that answers with JSON, and reads what is posted."""
    body = json.dumps(answer)
    say = answering(body, status=status)

    async def handler(connection: Connection) -> None:
        # Whatever was posted comes at once, and is of no interest but to a server that must not take it for a request.
        await asyncio.sleep(0.01)
        connection.reader._buffer.clear()  # type: ignore[attr-defined]
        await say(connection)

    return handler
