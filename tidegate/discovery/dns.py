"""The source ``dns``: addresses (A, AAAA) or services (SRV) that a DNS server answers with.

Servers are asked directly, one after the other, UDP first and TCP where the answer does not fit; names are taken for
fully qualified, so no search path applies.
"""

import asyncio
from collections.abc import Iterable, Mapping
from random import Random
from typing import cast

import dns.asyncquery
import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.resolver

from tidegate import addresses
from tidegate.config_discovery import DnsSource
from tidegate.discovery.contract import Failed, Found, News, Reset, Tell, Upserted, waited
from tidegate.discovery.dns_book import Book, Question, Service

AT_ONCE = 16
"""Questions that are under way at the same time."""

PAYLOAD_BYTES = 1232
"""What an answer over UDP may have, by EDNS: what surely passes unfragmented (https://www.dnsflagday.net/2020/)."""

MAX_SERVERS = 4


class Unanswered(Exception):  # noqa: N818  it says what became of a question
    """No server gave a usable answer; the message says why, in one line."""


class Dns:
    """Follows the name of ``settings``."""

    def __init__(self, settings: DnsSource, rng: Random) -> None:
        self._settings = settings
        self._rng = rng

    async def run(self, tell: Tell, asked: asyncio.Event) -> None:
        """Tell what is answered, whenever something was asked."""
        clock = asyncio.get_running_loop().time
        book = Book(self._settings, clock())
        while True:
            while questions := book.due(clock()):
                failures = await self._ask_all(book, questions)
                found = None if book.due(clock()) else book.found()
                if found is not None:
                    # What failed keeps its last good answer, which confirms nothing.
                    for news in _told(found, complete=book.complete):
                        tell(news)
                if failures:
                    tell(Failed(failures[0]))
            if await waited(asked, (book.next_due() - clock()) * (1 + 0.1 * self._rng.random())):
                book.ask_again(clock())

    async def _ask_all(self, book: Book, questions: list[Question]) -> list[str]:
        """Ask ``questions`` and write the answers into ``book``; return why some failed."""
        clock = asyncio.get_running_loop().time
        turn = asyncio.Semaphore(AT_ONCE)
        servers = await asyncio.to_thread(self._servers)
        failures: list[str] = []

        async def ask(question: Question) -> None:
            async with turn:
                try:
                    records, ttl = await self._ask(question, servers)
                except Unanswered as error:
                    failures.append(f"{question.kind} {question.name}: {error}")
                    book.failed(question, clock())
                else:
                    book.answered(question, records, ttl, clock())

        async with asyncio.TaskGroup() as tasks:
            for question in questions:
                tasks.create_task(ask(question))
        return failures

    def _servers(self) -> list[tuple[str, int]]:
        if self._settings.servers:
            return [addresses.split(server) for server in self._settings.servers]
        resolver = dns.resolver.Resolver(configure=False)
        try:
            resolver.read_resolv_conf("/etc/resolv.conf")
        except (OSError, dns.exception.DNSException):
            return []
        return [(str(server), 53) for server in resolver.nameservers][:MAX_SERVERS]

    async def _ask(
        self, question: Question, servers: list[tuple[str, int]]
    ) -> tuple[tuple[str, ...] | tuple[Service, ...], float]:
        reason = "no DNS server is known"
        for host, port in servers:
            query = dns.message.make_query(
                dns.name.from_text(question.name), question.kind, use_edns=0, payload=PAYLOAD_BYTES
            )
            try:
                answer, _ = await dns.asyncquery.udp_with_fallback(
                    query, host, timeout=self._settings.timeout_seconds, port=port
                )
                return _read(answer, question)
            except dns.exception.Timeout:
                reason = "no answer in time"
            except (dns.exception.DNSException, OSError, EOFError, ValueError, Unanswered) as error:
                reason = str(error) if isinstance(error, Unanswered) else "no usable answer"
        raise Unanswered(reason)


def _told(found: Mapping[str, Found], *, complete: bool) -> Iterable[News]:
    return [Reset(found)] if complete else [Upserted(key, one) for key, one in found.items()]


def _read(answer: dns.message.Message, question: Question) -> tuple[tuple[str, ...] | tuple[Service, ...], float]:
    """Return what ``answer`` says, and for how many seconds.

    Raises:
        Unanswered: it says that it does not know.
        DNSException: it contradicts itself.
    """
    if answer.rcode() not in {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}:
        raise Unanswered(dns.rcode.to_text(answer.rcode()))
    chain = cast("dns.message.QueryMessage", answer).resolve_chaining()
    if chain.answer is None:
        # What is not there now is looked for again as soon as may be, however long resolvers may remember that.
        return (), 0.0
    ttl = float(chain.minimum_ttl)
    if question.kind == "SRV":
        services = [
            Service(one.priority, one.weight, one.port, one.target.to_text(omit_final_dot=True).lower())
            for one in chain.answer
        ]
        return tuple(sorted(services)), ttl
    return tuple(sorted(addresses.ip(one.address) for one in chain.answer)), ttl
