"""Asking a running control plane at its admin port; where it cannot be asked, the command says so and ends."""

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import aiohttp
import click
import msgspec
from rich.console import Console

DEADLINE = 5.0
"""Seconds for the whole question and answer."""

PIPE_WIDTH = 10_000
"""Columns of what is not a terminal: more than any table has."""

T = TypeVar("T")


def ask(admin: str, path: str, kind: type[T], *, says: bool = False) -> tuple[bytes, T]:
    """Return the page at ``path`` of ``admin`` (host:port), as it came and read as ``kind``.

    A page that ``says`` what it does not have, in words with 404, is quoted.

    Raises:
        ClickException: it cannot be asked, or is nobody of ours.
    """
    body = answer(admin, path, quoted=(404,) if says else ())
    try:
        return body, msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        raise click.ClickException(f"{admin} answers, but not as Tidegate's admin port does") from None


def answer(admin: str, path: str, question: Mapping[str, Any] | None = None, *, quoted: Collection[int] = ()) -> bytes:
    """Return what ``admin`` (host:port) answers at ``path``, to a GET or to a ``question`` that is posted as JSON.

    Raises:
        ClickException: it cannot be asked, or answers with another status than 200; in its own words where the status
            is one of those that are ``quoted``.
    """
    try:
        status, body = asyncio.run(_exchange(f"http://{admin}{path}", question))
    except TimeoutError:
        raise click.ClickException(f"{admin} did not answer within {DEADLINE:.0f} s") from None
    except (aiohttp.ClientError, ValueError) as error:
        raise click.ClickException(f"cannot reach the admin port at {admin}: {reason(error)}") from None
    if status == 200:
        return body
    said = body.decode(errors="replace").strip()
    # 404 is also what those say who have no such page: an older release, or something else altogether.
    if status in quoted and said != "404: Not Found":
        raise click.ClickException(said)
    raise click.ClickException(f"{admin} answered {path} with {status}")


def reason(error: Exception) -> str:
    """Say it as the operating system does, where it was the operating system: aiohttp would repeat the address."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno and error.errno > 0 else str(error)


async def _exchange(url: str, question: Mapping[str, Any] | None) -> tuple[int, bytes]:
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    method = "GET" if question is None else "POST"
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(method, url, json=question) as response,
    ):
        return response.status, await response.read()


def width_for_pipes(console: Console) -> None:
    """Give ``console`` room for every line where it is no terminal: whoever reads from a pipe wants names whole."""
    if not console.is_terminal:
        console.width = PIPE_WIDTH
