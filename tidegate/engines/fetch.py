"""One page over HTTP, from an endpoint that may be slow, broken or hostile.

What is guarded against: a page that never ends or arrives byte by byte, a page too large for memory, a compressed one
that is small only on the wire, and a redirect to somewhere else.
"""

import asyncio
import contextlib
import errno
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace

import aiohttp

from tidegate.certificates import Outgoing
from tidegate.engines.outcome import Outcome, ScrapeError

KEEPALIVE_SECONDS = 4.0
"""How long an idle connection is kept: less than the 5 s after which vLLM, llama.cpp and SGLang close it."""

CHUNK_BYTES = 65_536

_ANY = {"Accept": "*/*"}


def open_session(per_host: int = 1) -> aiohttp.ClientSession:
    """Return a session for ``fetch``, to be closed by the caller.

    It opens ``per_host`` connections to an address at most; 0 for any number. It follows no proxy settings, keeps no
    cookies and sends no credentials. aiohttp itself repeats a GET once when the connection is reset before an answer,
    which is what a reused connection meets when the engine closed it just then.
    """
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_start.append(_connecting)
    tracing.on_connection_create_end.append(_connected)
    return aiohttp.ClientSession(
        # No bound over all hosts: endpoints that hang must not keep the others waiting.
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=per_host, keepalive_timeout=KEEPALIVE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept": "text/plain", "Accept-Encoding": "identity", "User-Agent": "tidegate"},
        auto_decompress=False,
        # One deadline covers all of a fetch, see there.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        trace_configs=[tracing],
    )


class _Progress:
    """Tells a deadline that passed while connecting from one that passed later."""

    connecting = False


async def _connecting(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:  # noqa: ARG001
    context.trace_request_ctx.connecting = True


async def _connected(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:  # noqa: ARG001
    context.trace_request_ctx.connecting = False


async def fetch(
    session: aiohttp.ClientSession, url: str, *, timeout_seconds: float, max_bytes: int, tls: Outgoing | None = None
) -> bytes:
    """Return the page at ``url``, which begins with https where there is ``tls``.

    Raises:
        ScrapeError: it did not arrive whole within ``timeout_seconds``, has more than ``max_bytes`` bytes, a status
            other than 200, or a content encoding.
    """
    async with _asked(session, "GET", url, timeout_seconds, tls) as response:
        return await _page(response, max_bytes)


async def exchange(
    session: aiohttp.ClientSession,
    url: str,
    *,
    timeout_seconds: float,
    max_bytes: int,
    body: Mapping[str, object] | None = None,
    tls: Outgoing | None = None,
) -> tuple[int, bytes]:
    """Return the status at ``url``, and what it answers, of which no more than ``max_bytes`` bytes may come.

    With a ``body`` that is posted, as JSON.

    Raises:
        ScrapeError: no whole answer arrived within ``timeout_seconds``, or it is too large.
    """
    method = "GET" if body is None else "POST"
    async with _asked(session, method, url, timeout_seconds, tls, body, _ANY) as response:
        return response.status, await _whole(response, max_bytes)


@contextlib.asynccontextmanager
async def _asked(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    timeout_seconds: float,
    tls: Outgoing | None = None,
    body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield the answer, and hold what is done with it to the deadline too."""
    progress = _Progress()
    secured: ssl.SSLContext | bool = True if tls is None else tls.context
    name = None if tls is None else tls.server_name
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            session.request(
                *(method, url),
                json=body,
                headers=headers,
                allow_redirects=False,
                trace_request_ctx=progress,
                ssl=secured,
                server_hostname=name,
            ) as response,
        ):
            yield response
    except TimeoutError:
        if progress.connecting:
            raise ScrapeError(Outcome.UNREACHABLE, f"no connection within {timeout_seconds:g} s") from None
        raise ScrapeError(Outcome.TIMEOUT, f"no complete page within {timeout_seconds:g} s") from None
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise ScrapeError(Outcome.UNREACHABLE, f"no connection over TLS: {_tls_reason(error)}") from None
    except aiohttp.ClientConnectorError as error:
        raise _no_connection(error.os_error) from None
    except aiohttp.ClientConnectionError:
        raise ScrapeError(Outcome.UNREADABLE, "the connection broke") from None
    except aiohttp.ClientPayloadError:
        raise ScrapeError(Outcome.UNREADABLE, "the page broke off") from None
    except aiohttp.ClientError:
        raise ScrapeError(Outcome.UNREADABLE, "the answer is not valid HTTP") from None


async def _page(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    refusal = _refusal(response, max_bytes)
    if refusal is not None:
        # What is left of the answer is not worth reading, so the connection cannot be used again.
        response.close()
        raise refusal
    return await _whole(response, max_bytes)


async def _whole(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    page = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        page += chunk
        if len(page) > max_bytes:
            response.close()
            raise _too_large(max_bytes)
    return bytes(page)


def _refusal(response: aiohttp.ClientResponse, max_bytes: int) -> ScrapeError | None:
    """Return what speaks against reading the page at all, judging by its headers."""
    if response.status != 200:
        return ScrapeError(Outcome.STATUS, f"status {response.status} instead of 200")
    if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        return ScrapeError(Outcome.UNREADABLE, "the page is compressed, which was not asked for")
    return _too_large(max_bytes) if (response.content_length or 0) > max_bytes else None


def _too_large(max_bytes: int) -> ScrapeError:
    return ScrapeError(Outcome.TOO_LARGE, f"the page has more than {max_bytes} bytes")


def _tls_reason(error: Exception) -> str:
    """Return what speaks against a connection over TLS; nothing that the peer sent."""
    cause: BaseException | None = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    if isinstance(cause or error, ssl.SSLCertVerificationError):
        return "its certificate is not accepted"
    return "the handshake failed"


async def connect(host: str, port: int, *, timeout_seconds: float) -> None:
    """Open a TCP connection to the IP address ``host`` and close it again.

    Raises:
        ScrapeError: none came about within ``timeout_seconds``.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    except TimeoutError:
        raise ScrapeError(Outcome.UNREACHABLE, f"no connection within {timeout_seconds:g} s") from None
    except OSError as error:
        raise _no_connection(error) from None
    transport.abort()


_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Errors that say that this process or host has run out of something: nothing against the endpoint."""


def _no_connection(error: OSError) -> ScrapeError:
    outcome = Outcome.FAULT if error.errno in _OURS else Outcome.UNREACHABLE
    return ScrapeError(outcome, f"cannot connect: {os.strerror(error.errno) if error.errno else 'unknown error'}")
