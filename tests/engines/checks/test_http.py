"""The check ``http``: a page, and the status that it should answer with."""

import pytest

from tests.engines.checks.asked import asked, check, unserved
from tests.engines.engine_server import answering, sending
from tidegate.engines.check import Finding


@pytest.mark.parametrize(
    ("status", "finding", "reason"),
    [
        ("200 OK", Finding.PASSED, ""),
        ("204 No Content", Finding.PASSED, ""),
        ("503 Service Unavailable", Finding.FAILED, "status"),
        ("404 Not Found", Finding.FAILED, "status"),
        ("302 Found\r\nLocation: http://169.254.169.254/", Finding.FAILED, "status"),
        ("401 Unauthorized", Finding.UNKNOWN, "refused"),
        ("429 Too Many Requests", Finding.BUSY, "busy"),
    ],
)
async def test_a_good_status_passes(status: str, finding: Finding, reason: str) -> None:
    found, heads = await asked(check(name="http"), answering("", status=status))
    assert (found.finding, found.reason) == (finding, reason)
    assert heads == ["GET /health"]


@pytest.mark.parametrize(("status", "finding"), [("401 No", Finding.PASSED), ("200 OK", Finding.FAILED)])
async def test_another_status_and_another_path_can_be_asked_for(status: str, finding: Finding) -> None:
    found, heads = await asked(check(name="http", path="/ready?deep=1", status=401), answering("", status=status))
    assert found.finding is finding
    assert heads == ["GET /ready?deep=1"]


async def test_a_page_that_does_not_come_in_time_is_told_from_one_that_says_no() -> None:
    found, _ = await asked(check(name="http", timeout_seconds=0.1), sending(then="hang"))
    assert found.finding is Finding.TIMED_OUT
    slow = [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", *[b"x"] * 50]
    found, _ = await asked(check(name="http", timeout_seconds=0.2), sending(*slow, pause=0.05))
    assert found.finding is Finding.TIMED_OUT


async def test_a_page_without_end_is_not_read() -> None:
    found, _ = await asked(check(name="http"), answering("x" * 1_000_000))
    assert (found.finding, found.reason) == (Finding.FAILED, "too_large")


async def test_nobody_there_fails() -> None:
    assert (await unserved(check(name="http"))).reason == "unreachable"
