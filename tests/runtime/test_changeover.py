"""From one configuration to the next: what is declared meanwhile."""

from typing import Any

import pytest

from tests.configurations import parsed
from tidegate.config import Config
from tidegate.runtime import changeover
from tidegate.runtime.changeover import Changeover


class Deciding:
    """Decides by what it is told, at once."""

    def __init__(self) -> None:
        self.by: list[Config] = []

    async def prepare(self, config: Config) -> None:
        pass

    def configure(self, config: Config) -> None:
        self.by.append(config)

    async def settled(self) -> None:
        pass


def config(*pools: str, sidecar: str) -> Config:
    declared: list[dict[str, Any]] = [
        {"name": name, "models": [name], "endpoints": [{"address": f"10.0.0.{at}:1"}]} for at, name in enumerate(pools)
    ]
    group = {"name": "sidecar", "match": {"cluster": "apps"}, "pools": [sidecar]}
    return parsed({"pools": declared, "envoys": {"groups": [group]}})


async def test_the_envoys_of_a_group_know_a_pool_that_goes_until_the_last_decision_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changeover, "IN_TRANSIT_SECONDS", 0.0)
    declared: list[Config] = []
    deciding = Deciding()

    async def synced() -> None:
        pass

    made = Changeover(deciding, declared.append, declared.append, synced, lambda: True)
    before, after = config("a", "old", sidecar="old"), config("a", "new", sidecar="new")
    await made.make(before, after)
    assert [[pool.name for pool in one.pools] for one in declared] == [["old", "a", "new"], ["a", "new"]]
    assert [one.envoys.groups[0].pools for one in declared] == [("new", "old"), ("new",)]
    assert deciding.by == [after]
