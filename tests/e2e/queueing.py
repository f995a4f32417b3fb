"""Clients that may have to wait, and a configuration that has them wait."""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.e2e.stack import MODEL, Stack, configuration

BATCH = 4


def queueing(ports: list[int], **queue: Any) -> dict[str, Any]:
    """Return a configuration whose engines take ``BATCH`` requests each, unless ``queue`` says otherwise."""
    config = configuration(ports, policy="least_request")
    config["pools"][0]["queue"] = {"max_running": BATCH, **queue}
    return config


@dataclass
class Answer:
    """What came back for one request; times in seconds."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    ttft: float = 0.0
    took: float = 0.0
    whole: bool = False


async def ask(
    session: aiohttp.ClientSession,
    stack: Stack,
    tokens: int = 20,
    prompt: str = "hi",
    **headers: str,
) -> Answer:
    """Stream one answer of so many ``tokens``; underscores in the names of ``headers`` are hyphens."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens}
    body |= {"ignore_eos": True, "stream": True}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer, began = Answer(), time.monotonic()
    async with session.post(f"{stack.clients}/chat/completions", json=body, headers=sent) as response:
        answer.status, answer.headers = response.status, response.headers
        if response.status == 200:
            async for line in response.content:
                if not answer.ttft and b'"content":"' in line:
                    answer.ttft = time.monotonic() - began
                answer.whole = answer.whole or b"[DONE]" in line
        else:
            answer.body = json.loads(await response.read())
    answer.took = time.monotonic() - began
    return answer


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        yield session


def waiting(stack: Stack) -> float:
    return stack.total("tidegate_queue_requests")
