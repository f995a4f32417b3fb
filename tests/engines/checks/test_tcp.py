"""The check ``tcp``: only whether a connection comes about."""

from tests.engines.checks.asked import asked, check, unserved
from tests.engines.engine_server import sending
from tidegate.engines.check import Finding


async def test_a_connection_passes_whatever_is_said_on_it() -> None:
    found, heads = await asked(check(name="tcp"), sending(then="hang"))
    assert found.finding is Finding.PASSED
    assert heads == []


async def test_no_connection_fails() -> None:
    found = await unserved(check(name="tcp"))
    assert (found.finding, found.reason) == (Finding.FAILED, "unreachable")
