"""Asking a running control plane at its admin port; where it cannot be asked, the command says so and ends."""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import click

from tidegate.cli._admin import DEADLINE, reason
from tidegate.telemetry.admin import EXPLAIN


def ask(admin: str, question: Mapping[str, Any]) -> bytes:
    """Ask the control plane at ``admin`` (host:port) how it would decide, and return the record that it answers with.

    Raises:
        click.ClickException: it cannot be asked, or has no answer.
    """
    return act(admin, EXPLAIN, question)


def act(admin: str, path: str, asked: Mapping[str, Any]) -> bytes:
    """Have the control plane at ``admin`` (host:port) do what is ``asked`` at ``path``, and return its answer.

    Raises:
        click.ClickException: it cannot be asked, or will not.
    """
    try:
        status, body = asyncio.run(_post(f"http://{admin}{path}", asked))
    except TimeoutError:
        raise click.ClickException(f"{admin} did not answer within {DEADLINE:.0f} s") from None
    except (aiohttp.ClientError, ValueError) as error:
        raise click.ClickException(f"cannot reach the admin port at {admin}: {reason(error)}") from None
    if status == 200:
        return body
    said = body.decode(errors="replace").strip()
    # 404 is also what those say who have no such page: an older release, or something else altogether.
    if status in {400, 409} or (status == 404 and said != "404: Not Found"):
        raise click.ClickException(said)
    raise click.ClickException(f"{admin} answered {path} with {status}")


async def _post(url: str, question: Mapping[str, Any]) -> tuple[int, bytes]:
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, json=question) as response:
        return response.status, await response.read()
