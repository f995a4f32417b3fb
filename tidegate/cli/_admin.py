"""Asking a running control plane's admin port for a page of JSON."""

import asyncio
import os
from typing import TypeVar

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
    try:
        body = asyncio.run(_fetch(f"http://{admin}{path}"))
        return body, msgspec.json.decode(body, type=kind)
    except TimeoutError:
        raise click.ClickException(f"{admin} did not answer within {DEADLINE:.0f} s") from None
    except msgspec.DecodeError:
        raise click.ClickException(f"{admin} answers, but not as Tidegate's admin port does") from None
    except aiohttp.ClientResponseError as error:
        # 404 is also what those say who have no such page: an older release, or something else altogether.
        if says and error.status == 404 and error.message and not error.message.startswith("404"):
            raise click.ClickException(error.message) from None
        raise click.ClickException(f"{admin} answered {path} with {error.status}") from None
    except (aiohttp.ClientError, ValueError) as error:
        raise click.ClickException(f"cannot reach the admin port at {admin}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Say it as the operating system does, where it was the operating system: aiohttp would repeat the address."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno and error.errno > 0 else str(error)


async def _fetch(url: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        if response.status == 404:
            said = (await response.text(errors="replace")).strip()
            raise aiohttp.ClientResponseError(response.request_info, (), status=404, message=said)
        response.raise_for_status()
        return await response.read()


def width_for_pipes(console: Console) -> None:
    """Give ``console`` room for every line where it is no terminal: whoever reads from a pipe wants names whole."""
    if not console.is_terminal:
        console.width = PIPE_WIDTH
