"""Redis with TLS, users and passwords."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.authority import Authority
from tests.sharing.redis_server import redis_server
from tests.sharing.replica import SCOPE, Replica, per_day, replicas
from tidegate.fleet.others import Others
from tidegate.sharing import inflight

DOCUMENT = Path(__file__).parents[2] / "docs" / "replicas.md"
"""It says what the user needs."""


def user() -> list[str]:
    """Return the words of the user that is documented, with the tests' prefix and password."""
    _, found, rest = DOCUMENT.read_text("utf-8").partition("user tidegate")
    words = f"tidegate{rest.partition('```')[0]}".split()
    assert found
    return [word.replace("PASSWORD", "secret").replace("{tidegate}", "{test}") for word in words]


async def test_a_user_needs_no_more_than_is_documented(tmp_path: Path, stack: AsyncExitStack) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    with redis_server(tmp_path, "--user", *user()) as server:
        server.do("HSET", "{test}:meta", "epoch", "long ago", "began", 0)
        mine = {"username": "tidegate", "password_file": str(password)}
        (one,) = await replicas(stack, 1, server.port, per_day(3), **mine, lease=1.0)
        assert await one.granted(5) == 3
        one.allowance.regularly(
            0.05, lambda: [(inflight.tell([(SCOPE, Others(1, 1, 1, 1))], lambda _: b"endpoint"), None)]
        )
        one.allowance.settle("r", 0, 0)
        await one.until(lambda: len(one.counts.calls) > 6 and server.do("HLEN", "{test}:inflight") == 1)
        assert one.counts.failures() == []


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"username": "tidegate", "password": "wrong"}, "not let in"),
        ({"username": "nobody", "password": "secret"}, "not let in"),
        ({}, "not let in"),
        ({"username": "idle", "password": "secret"}, "no permission"),
    ],
    ids=["wrong password", "unknown user", "no password", "no permission"],
)
async def test_who_may_not_keeps_its_share_and_says_why(
    place: dict[str, Any], reason: str, tmp_path: Path, stack: AsyncExitStack
) -> None:
    idle = "idle on >secret ~* -@all +ping"
    users = ("--user", *user(), "--user", *idle.split(), "--requirepass", "other")
    with redis_server(tmp_path, *users, password="other") as server:
        one = await stack.enter_async_context(
            Replica(server.port, {SCOPE: [per_day(4)]}, replicas=2, **place).running(shared=False)
        )
        await one.until(lambda: bool(one.counts.failures()))
        assert one.counts.failures()[0] == reason
        assert await one.granted(4) == 2
        assert "secret" not in one.allowance.state().reason


async def test_certificates_are_checked_on_both_sides(tmp_path: Path, stack: AsyncExitStack) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "other")
    certificate, key = ours.issue("redis")
    mine, my_key = ours.issue("tidegate")
    others, others_key = theirs.issue("other")
    options: tuple[str, ...] = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    options += ("--tls-ca-cert-file", str(ours.certificate), "--tls-auth-clients", "yes")
    admin = {"ssl": True, "ssl_ca_certs": str(ours.certificate), "ssl_certfile": str(mine), "ssl_keyfile": str(my_key)}
    with redis_server(tmp_path, *options, tls=True, **admin) as server:
        server.do("HSET", "{test}:meta", "epoch", "long ago", "began", 0)
        good: dict[str, Any] = {"tls": True, "ca": str(ours.certificate), "certificate": str(mine), "key": str(my_key)}
        (one,) = await replicas(stack, 1, server.port, per_day(3), **good)
        assert await one.granted(5) == 3
        wrong: list[dict[str, Any]] = [
            {"tls": False},
            {"ca": str(theirs.certificate)},
            {"certificate": str(others), "key": str(others_key)},
            {"ca": None},
            {"ca": "/nowhere"},
        ]
        for bad in wrong:
            other = Replica(server.port, {SCOPE: [per_day(3)]}, **{**good, **bad})
            async with other.running(shared=False):
                await other.until(lambda other=other: bool(other.counts.failures()))  # type: ignore[misc]
                assert not other.allowance.state().is_shared
