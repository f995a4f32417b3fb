"""A DNS server for tests: it answers over UDP and TCP from a table that a test changes."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from tests.ports import free_port


class DnsServer:
    """Attributes.

    records: by name and type, such as ``("llm.test", "A")``: the TTL and the records' texts.
    rcodes: what is answered instead, likewise; ``None`` for no answer at all.
    asked: the questions so far.
    over_tcp: how many came over TCP.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.records: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self.rcodes: dict[tuple[str, str], str | None] = {}
        self.asked: list[tuple[str, str]] = []
        self.over_tcp = 0

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, wire: bytes, limit: int) -> bytes | None:
        query = dns.message.from_wire(wire)
        (question,) = query.question
        key = (question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype))
        self.asked.append(key)
        reply = dns.message.make_response(query)
        rcode = self.rcodes.get(key, "NOERROR")
        if rcode is None:
            return None
        reply.set_rcode(dns.rcode.from_text(rcode))
        if rcode == "NOERROR" and key in self.records:
            ttl, texts = self.records[key]
            reply.answer.append(dns.rrset.from_text_list(question.name, ttl, "IN", key[1], texts))
        whole = reply.to_wire(max_size=65_535)
        if len(whole) <= limit:
            return whole
        reply.answer.clear()
        reply.flags |= dns.flags.TC
        return reply.to_wire()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Udp(self), ("127.0.0.1", self.port))
        server = await asyncio.start_server(self._tcp, "127.0.0.1", self.port)
        try:
            yield
        finally:
            transport.close()
            server.close()
            await server.wait_closed()

    async def _tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.over_tcp += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            if reply := self.answer(await reader.readexactly(length), 65_535):
                writer.write(struct.pack("!H", len(reply)) + reply)
                await writer.drain()
        writer.close()


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if reply := self._server.answer(data, 1232):
            self._transport.sendto(reply, addr)
