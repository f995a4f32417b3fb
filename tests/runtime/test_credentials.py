"""TLS on both transports: who is let in, who is not, and certificates that are renewed while we run."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.authority import HERE, Authority, tls
from tests.extproc.desks import FakeDesk
from tests.extproc.h2_client import HEALTH, Counts
from tests.ports import free_port
from tidegate.config_control import Control
from tidegate.runtime import services

SERVING = b"\x08\x01"


class CountingDesk(FakeDesk, Counts):
    """A desk that counts streams as well."""

    def __init__(self) -> None:
        FakeDesk.__init__(self)
        Counts.__init__(self)


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "theirs")


@contextlib.asynccontextmanager
async def listening(transport: str, ours: Authority, theirs: Authority) -> AsyncIterator[Control]:
    port = free_port()
    secured = tls(ours, theirs)
    control = Control.model_validate({"ext_proc_port": port, "ext_proc_transport": transport, "tls": secured})
    async with asyncio.timeout(30), services.ext_proc(control, port, CountingDesk()):
        yield control


async def healthy(control: Control, ours: Authority, identity: tuple[Path, Path] | None) -> bytes | grpc.StatusCode:
    """Ask for the health over TLS, with ``identity`` as the peer's certificate and key."""
    certificate, key = (None, None) if identity is None else (path.read_bytes() for path in identity)
    credentials = grpc.ssl_channel_credentials(ours.certificate.read_bytes(), key, certificate)
    async with grpc.aio.secure_channel(f"{HERE}:{control.ext_proc_port}", credentials) as channel:
        check: Any = channel.unary_unary(HEALTH)
        try:
            answer: bytes = await check(b"", timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return answer


@pytest.mark.parametrize("transport", ["grpc", "h2"])
async def test_only_peers_with_a_certificate_of_the_right_authority_are_served(
    transport: str, ours: Authority, theirs: Authority
) -> None:
    async with listening(transport, ours, theirs) as control:
        assert await healthy(control, ours, theirs.issue("peer")) == SERVING
        assert await healthy(control, ours, None) is grpc.StatusCode.UNAVAILABLE
        assert await healthy(control, ours, ours.issue("stranger")) is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(f"{HERE}:{control.ext_proc_port}") as channel:
            check: Any = channel.unary_unary(HEALTH)
            with pytest.raises(grpc.aio.AioRpcError):
                await check(b"", timeout=10)
        assert await healthy(control, ours, theirs.issue("another")) == SERVING


@pytest.mark.parametrize("transport", ["grpc", "h2"])
async def test_renewed_certificates_and_authorities_count_from_the_next_connection_on(
    transport: str, ours: Authority, theirs: Authority, tmp_path: Path
) -> None:
    async with listening(transport, ours, theirs) as control:
        before = theirs.issue("peer")
        assert await healthy(control, ours, before) == SERVING
        new_ours, new_theirs = Authority(tmp_path, "new-ours"), Authority(tmp_path, "new-theirs")
        new_ours.issue("tidegate")
        new_theirs.certificate.replace(theirs.certificate)
        assert control.tls is not None
        for path in control.tls.files:
            os.utime(path, ns=(2 * 10**18, 2 * 10**18))
        assert await healthy(control, new_ours, new_theirs.issue("new-peer")) == SERVING
        assert await healthy(control, new_ours, before) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("protocols", [[], ["http/1.1"]])
async def test_a_peer_that_does_not_agree_to_h2_gets_nothing(
    protocols: list[str], ours: Authority, theirs: Authority
) -> None:
    async with listening("h2", ours, theirs) as control:
        context = ssl.create_default_context(cafile=ours.certificate)
        context.load_cert_chain(*theirs.issue("peer"))
        if protocols:
            context.set_alpn_protocols(protocols)
        received = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            reader, writer = await asyncio.open_connection(HERE, control.ext_proc_port, ssl=context)
            received = await asyncio.wait_for(reader.read(100), 10)
            writer.close()
        assert received == b""
