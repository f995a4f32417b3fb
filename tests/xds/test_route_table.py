"""The route table in its serialized form is the one that is described."""

from typing import Any

import pytest
from envoy_data_plane.envoy.config.route.v3 import RouteConfiguration

from tests.xds.fleets import config
from tidegate.config import Config
from xds.route_table import encoded
from xds.routes import of_pool, route_configuration

MANY = config(*(f"p{number}" for number in range(20)))
OPEN = Config.model_validate(
    {
        "pools": tuple(
            {"name": name, "models": (name,), "fail_open": True, "endpoints": ({"address": f"10.0.0.{at}:1"},)}
            for at, name in enumerate("abc")
        ),
        "routes": ({"path": "/chat", "api": "chat_completions", "pool": "b", "rewrite_path": "/v1/x"},),
    }
)


@pytest.mark.parametrize("of", [config("a"), MANY, OPEN])
@pytest.mark.parametrize("elsewhere", [set(), {"b"}, {"a", "b", "p3", "p7"}])
def test_it_holds_the_same_routes_in_the_same_order(of: Config, elsewhere: set[str]) -> None:
    missing = frozenset(elsewhere & {pool.name for pool in of.pools})
    assert RouteConfiguration().parse(encoded(of, missing, {})) == route_configuration(of, missing)


def test_each_pool_is_serialized_once_for_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(pool: Any, of: Config) -> Any:
        asked.append(pool.name)
        return of_pool(pool, of)

    monkeypatch.setattr("xds.route_table.of_pool", noted)
    made: dict[str, bytes] = {}
    tables = [encoded(MANY, frozenset({f"p{number}"}), made) for number in range(10)]
    assert sorted(asked) == sorted(pool.name for pool in MANY.pools)
    assert len({*tables}) == 10
