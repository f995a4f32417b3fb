"""What replicas share, made as the configuration says, and asked through the tenants of a control plane."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.at_once import at_once
from tests.configurations import parsed
from tests.telemetry.entries import DECISION, entry
from tidegate.fleet.state import Fleet
from tidegate.runtime import shared_limits
from tidegate.runtime.kept_budgets import KeptBudgets
from tidegate.runtime.part import Surroundings
from tidegate.runtime.shared_inflight import SharedInflight
from tidegate.runtime.tenants import Tenants
from tidegate.scheduling.allowance import Ask
from tidegate.scheduling.budget import Cost
from tidegate.sharing.names import Names
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.record import parse

SECTIONS: dict[str, Any] = {
    "pools": [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}],
    "tenants": [{"name": "alice", "limits": {"requests_per_day": 9}}],
}


def test_without_redis_nothing_is_shared_and_nothing_is_awaited() -> None:
    registry = CollectorRegistry()
    assert shared_limits.made(parsed(SECTIONS), registry) is None
    tenants = Tenants(lambda: 1e9, registry)
    assert isinstance(shared_limits.keeping(tenants, parsed(SECTIONS)), KeptBudgets)
    assert tenants.sharing() is None
    assert "tidegate_redis" not in generate_latest(registry).decode()


def test_with_redis_the_share_counts_until_it_is_reached() -> None:
    config = parsed({**SECTIONS, "redis": {"url": "redis://127.0.0.1:1", "replicas": 3}})
    registry = CollectorRegistry()
    tenants = Tenants(lambda: 1e9, registry, shared_limits.made(config, registry))
    tenants.configure(config)
    asked = [at_once(tenants.take(Ask(f"r{at}", "alice", ("tenant:alice",), Cost(1, 1)))) for at in range(5)]
    assert [answer.exceeded is None for answer in asked] == [True, True, True, False, False]
    assert tenants.sharing() == {"is_shared": False, "reason": "not connected yet", "replicas": 0, "parts": 3}
    assert tenants.describe()["sharing"] == tenants.sharing()
    assert isinstance(shared_limits.keeping(tenants, config), shared_limits.SharedLimits)
    page = generate_latest(registry).decode()
    assert "tidegate_redis_shared 0.0" in page
    assert "tidegate_redis_decided_alone_total 5.0" in page
    assert 'tidegate_tenant_requests_total{tenant="alice"} 3.0' in page
    tenants.ended(parse(entry(decision={**DECISION, "reservation": "r0"})))
    tenants.ended(parse(entry(decision={**DECISION, "reservation": "of another replica"})))
    tenants.withdraw("r1")
    tenants.withdraw("r1")
    assert tenants.describe()["requests_held"] == 1


def test_what_is_in_flight_is_told_where_there_is_a_redis_and_only_there() -> None:
    for section, parts in (({}, 0), ({"redis": {"url": "redis://127.0.0.1:1"}}, 1)):
        config, metrics = parsed({**SECTIONS, **section}), Metrics(tuple, int)
        shared = shared_limits.made(config, metrics.registry)
        around = Surroundings(Fleet(45.0), lambda _: None, metrics, config, lambda: None, shared=shared)
        assert len(SharedInflight.of(around)) == parts
        assert ("tidegate_redis_others_requests 0.0" in metrics.render().decode()) is bool(parts)


def test_names_are_hashed_with_what_is_in_the_file_or_with_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salts: list[str] = []

    def named(salt: str) -> Names:
        salts.append(salt)
        return Names(salt)

    monkeypatch.setattr("tidegate.sharing.names.Names", named)
    file = tmp_path / "salt"
    file.write_text("of all replicas\n")
    url = "redis://127.0.0.1:1"
    for more in ({}, {"prefix": "fleet-7"}, {"salt_file": str(file)}):
        shared_limits.made(parsed({**SECTIONS, "redis": {"url": url, **more}}), CollectorRegistry())
    assert salts == ["tidegate", "fleet-7", "of all replicas"]


def test_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_SECRET", "hunter2")
    section = parsed({**SECTIONS, "redis": {"url": "rediss://a:1/2", "password_env": "REDIS_SECRET"}}).redis
    assert section is not None
    place = shared_limits.place_of(section)
    assert (place.host, place.port, place.database, place.tls) == ("a", 1, 2, True)
    assert place.password == "hunter2"
