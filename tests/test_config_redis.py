"""What may be said of the Redis through which replicas share limits."""

from pathlib import Path
from typing import Any

import pytest

from tests.configurations import EXAMPLE, changed, faults, parsed
from tidegate.config import parse
from tidegate.config_redis import EXPECTED, Location

URL = "redis.url"


def redis(**keys: Any) -> dict[str, Any]:
    return changed("redis", {"url": "rediss://redis.internal", **keys})


def test_nothing_is_shared_unless_that_is_said() -> None:
    assert parse(EXAMPLE, "tidegate.yaml").redis is None


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("redis://10.0.0.5", Location("10.0.0.5", 6379, 0, tls=False)),
        ("redis://10.0.0.5:1234/", Location("10.0.0.5", 1234, 0, tls=False)),
        ("rediss://redis.internal:6380/15", Location("redis.internal", 6380, 15, tls=True)),
        ("redis://[fd00::1]:6379/1", Location("fd00::1", 6379, 1, tls=False)),
    ],
)
def test_a_url_says_where_it_is(url: str, location: Location) -> None:
    config = parsed(redis(url=url)).redis
    assert config is not None
    assert config.location == location


@pytest.mark.parametrize(
    "url",
    ["", "redis://", "http://a", "10.0.0.5:6379", "redis://a:port", "redis://a:70000", "redis://a/x", "redis://a?db=1"],
)
def test_what_is_no_url_of_redis_is_refused(url: str) -> None:
    (said,) = faults(redis(url=url))
    assert said.startswith(f"{URL}: {EXPECTED}")


@pytest.mark.parametrize("url", ["redis://:hunter2@a", "redis://me:hunter2@a:1/0"])
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    (said,) = faults(redis(url=url))
    assert "no password" in said
    assert "hunter2" not in said


def test_keys_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret")
    here = str(file)
    for keys, said in (
        ({"password_file": here, "password_env": "A"}, "password_file or password_env, not both"),
        ({"certificate": here}, "certificate and key, or neither"),
        ({"url": "redis://a", "ca": here}, "certificates are for TLS"),
        ({"salt_file": str(tmp_path / "none")}, "files that can be read"),
        ({"prefix": "a b"}, "1 to 64 of"),
        ({"prefix": "{a}"}, "1 to 64 of"),
        ({"password_env": "1 2"}, ""),
        ({"replicas": 0}, ""),
        ({"timeout_seconds": 2.0}, ""),
    ):
        (fault,) = faults(redis(**keys))
        assert said in fault
    assert parsed(redis(password_file=here, salt_file=here, ca=here, certificate=here, key=here)).redis is not None


def test_redis_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "redis" else object())
    assert faults(redis()) == ["redis: the package redis, which it needs, is missing; install tidegate[redis]"]
