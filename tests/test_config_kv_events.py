"""What is said where KV events are configured that cannot come."""

import pytest

from tests.configurations import changed, faults


def test_kv_events_need_the_package_that_receives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    missing = "the packages pyzmq and jinja2, which it needs, are missing; install tidegate[kv-events]"
    assert faults(changed("redis", None)) == [f"pools[0].kv_events: {missing}"]


def test_kv_events_come_from_engines_that_publish_them() -> None:
    assert faults(changed("pools.0.engine", "tgi")) == [
        "pools[0].kv_events: expected an engine that publishes them, vllm or sglang, not tgi"
    ]
    assert faults(changed("pools.0.kv_events", None)) == [
        "pools[0].endpoints[0]: a port of KV events; expected kv_events in its pool too"
    ]
