"""The source ``dns``, against a server that answers over sockets."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tests.discovery.dns_server import DnsServer
from tests.discovery.told import telling
from tidegate.config_discovery import DnsSource
from tidegate.discovery.dns import Dns
from tidegate.discovery.dns_book import Book, Question, Service


@pytest.fixture
async def server() -> AsyncIterator[DnsServer]:
    tested = DnsServer()
    async with tested.running():
        yield tested


def settings(server: DnsServer, **more: object) -> DnsSource:
    given = {"name": "llm.test", "port": 8000, "servers": (server.place,), "min_seconds": 0.1, "timeout_seconds": 0.3}
    return DnsSource.model_validate({**given, **more})


def source(server: DnsServer, **more: object) -> Dns:
    return Dns(settings(server, **more), random.Random(1))


async def test_addresses_come_and_go_as_they_are_answered(server: DnsServer) -> None:
    server.records["llm.test", "A"] = (0, ["10.0.0.1", "10.0.0.2"])
    async with telling(source(server)) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
        server.records["llm.test", "A"] = (0, ["10.0.0.2", "10.0.0.3"])
        await told.until(lambda: told.addresses == {"10.0.0.2:8000", "10.0.0.3:8000"})
    assert {kind for _, kind in server.asked} == {"A"}


async def test_both_families_make_one_set_and_one_that_fails_keeps_its_last_good_answer(server: DnsServer) -> None:
    server.records |= {("llm.test", "A"): (0, ["10.0.0.1"]), ("llm.test", "AAAA"): (0, ["fd00::1"])}
    async with telling(source(server, records="both")) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:8000", "[fd00::1]:8000"})
        server.rcodes["llm.test", "AAAA"] = "SERVFAIL"
        server.records["llm.test", "A"] = (0, ["10.0.0.2"])
        await told.until(lambda: told.addresses == {"10.0.0.2:8000", "[fd00::1]:8000"})
        assert "AAAA llm.test: SERVFAIL" in told.failures


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", None])
async def test_a_server_that_fails_takes_nothing_away(server: DnsServer, rcode: str | None) -> None:
    server.records["llm.test", "A"] = (0, ["10.0.0.1"])
    async with telling(source(server)) as told:
        await told.until(lambda: told.passes == 1)
        server.rcodes["llm.test", "A"] = rcode
        await told.until(lambda: bool(told.failures))
        assert told.failures[0] == f"A llm.test: {rcode or 'no answer in time'}"
        assert told.addresses == {"10.0.0.1:8000"}
        del server.rcodes["llm.test", "A"]
        server.records["llm.test", "A"] = (0, ["10.0.0.2"])
        await told.until(lambda: told.addresses == {"10.0.0.2:8000"})


@pytest.mark.parametrize("rcode", ["NXDOMAIN", "NOERROR"])
async def test_a_name_without_records_is_a_complete_pass_without_endpoints(server: DnsServer, rcode: str) -> None:
    server.rcodes["llm.test", "A"] = rcode
    async with telling(source(server)) as told:
        await told.until(lambda: told.passes == 2)
        assert told.addresses == set()


async def test_two_thousand_records_come_over_tcp(server: DnsServer) -> None:
    server.records["llm.test", "A"] = (60, [f"10.0.{i >> 8}.{i & 255}" for i in range(2000)])
    async with telling(source(server)) as told:
        await told.until(lambda: len(told.addresses) == 2000)
    assert server.over_tcp == 1


async def test_services_have_ports_and_weights_and_only_the_best_priority_counts(server: DnsServer) -> None:
    server.records["_llm._tcp.test", "SRV"] = (
        0,
        ["1 2000 8001 a.test.", "1 1000 8002 b.test.", "2 1 8003 spare.test.", "1 0 8004 a.test."],
    )
    server.records |= {("a.test", "A"): (0, ["10.0.0.1"]), ("b.test", "AAAA"): (0, ["fd00::2"])}
    async with telling(source(server, name="_llm._tcp.test", records="srv", port=None)) as told:
        await told.until(lambda: told.passes > 0)
        weights = {one.endpoint.address: one.endpoint.weight for one in told.known.values()}
        assert weights == {"10.0.0.1:8001": 1000, "[fd00::2]:8002": 500, "10.0.0.1:8004": 1}
        server.records["_llm._tcp.test", "SRV"] = (0, ["1 1 8002 b.test."])
        await told.until(lambda: told.addresses == {"[fd00::2]:8002"})
        server.records["_llm._tcp.test", "SRV"] = (0, ["0 0 0 ."])
        await told.until(lambda: told.addresses == set())
    assert ("spare.test", "A") not in server.asked


async def test_the_second_server_answers_where_the_first_does_not(server: DnsServer) -> None:
    server.records["llm.test", "A"] = (0, ["10.0.0.1"])
    dead = DnsServer()
    async with telling(source(server, servers=(dead.place, server.place))) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})


async def test_the_ttl_is_honoured_within_the_bounds_and_a_pass_can_be_asked_for(server: DnsServer) -> None:
    server.records["llm.test", "A"] = (3600, ["10.0.0.1"])
    async with telling(source(server)) as told:
        await told.until(lambda: told.passes == 1)
        await asyncio.sleep(0.5)
        assert len(server.asked) == 1
        told.asked.set()
        await told.until(lambda: told.passes == 2)


def book(**more: object) -> Book:
    given = {"name": "llm.test", "port": 8000, "min_seconds": 5.0, "max_seconds": 60.0}
    return Book(DnsSource.model_validate({**given, **more}), 0.0)


A, AAAA, SRV = Question("llm.test", "A"), Question("llm.test", "AAAA"), Question("llm.test", "SRV")


@pytest.mark.parametrize(("ttl", "due"), [(0, 5.0), (30, 30.0), (3600, 60.0)])
def test_an_answer_is_good_for_its_ttl_within_the_bounds(ttl: float, due: float) -> None:
    tested = book()
    tested.answered(A, ["10.0.0.1"], ttl, 0.0)
    assert tested.next_due() == due


def test_failures_are_spaced_more_and_more() -> None:
    tested, waits, now = book(), [], 0.0
    for _ in range(6):
        tested.failed(A, now)
        waits.append(tested.next_due() - now)
        now = tested.next_due()
    assert waits == [5, 10, 20, 40, 60, 60]


def test_nothing_is_said_before_each_name_was_answered_or_one_family_failed_twice() -> None:
    tested = book(records="both")
    tested.answered(A, ["10.0.0.1"], 0, 0.0)
    assert tested.found() is None
    tested.failed(AAAA, 0.0)
    assert tested.found() is None
    tested.failed(AAAA, 5.0)
    assert list(tested.found() or ()) == ["10.0.0.1:8000"]
    assert tested.complete


def test_a_name_that_fails_in_all_families_is_no_complete_pass() -> None:
    tested = book(records="both")
    tested.answered(A, ["10.0.0.1"], 0, 0.0)
    tested.answered(AAAA, [], 0, 0.0)
    tested.failed(A, 5.0)
    tested.failed(AAAA, 5.0)
    assert list(tested.found() or ()) == ["10.0.0.1:8000"]
    assert not tested.complete


def test_what_is_no_longer_of_use_is_not_asked_again() -> None:
    tested = book(records="srv", port=None)
    tested.answered(SRV, [Service(1, 1, 80, "a.test")], 60, 0.0)
    assert {one.name for one in tested.due(0.0)} == {"a.test"}
    tested.answered(SRV, [Service(1, 1, 80, "b.test")], 60, 1.0)
    assert {one.name for one in tested.due(1.0)} == {"b.test"}
    tested.answered(Question("a.test", "A"), ["10.0.0.1"], 60, 2.0)
    assert tested.found() is None
