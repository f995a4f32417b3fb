"""What directories say of requests, in the configuration that is decided by."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.configurations import parsed
from tidegate.config import Config
from tidegate.config_discovery import Discovery
from tidegate.config_routes import traffic
from tidegate.config_values import CHECKED
from tidegate.discovery.contract import News, Rewrite, Steered, Steering
from tidegate.runtime import steering
from tidegate.runtime.discovered import Discovered
from tidegate.scheduling.routes import Routes, chosen

CANARY = Rewrite("canary", ("food",), (("stable", 90.0), ("new", 10.0)))
WHOLE = Rewrite("whole", (), (("base", 1.0),))


def config(*pools: tuple[str, tuple[str, ...]], **more: Any) -> Config:
    endpoints = [[{"address": f"10.0.0.{at}:8000"}] for at, _ in enumerate(pools, 1)]
    return parsed(
        {
            "pools": [
                {"name": name, "models": list(models), "endpoints": its}
                for (name, models), its in zip(pools, endpoints, strict=True)
            ],
            **more,
        }
    )


def asked(
    config: Config, rewrites: Mapping[str, tuple[Rewrite, ...]], model: str, times: int = 1
) -> Counter[tuple[str, str]]:
    """Return where requests for ``model`` go, and by what name engines are asked."""
    routes = Routes(traffic((*config.routes, *steering.routes_of(config, rewrites))))
    found: Counter[tuple[str, str]] = Counter()
    for _ in range(times):
        route = chosen(routes.possible("/v1/chat/completions", "chat", {}, model), 10)
        if route is not None:
            route = routes.shared_out(route)
            found[route.pool, route.rewrite_model] += 1
    return found


def test_a_weighted_rewrite_is_shared_out_as_a_split_is() -> None:
    counts = asked(config(("llama", ("*",))), {"llama": (CANARY,)}, "food", 10_000)
    assert abs(counts["llama", "stable"] - 9_000) <= 100
    assert counts["llama", "stable"] + counts["llama", "new"] == 10_000


def test_a_model_that_nobody_serves_goes_where_it_is_rewritten_and_one_that_others_serve_stays_there() -> None:
    both = config(("llama", ("llama-*",)), ("qwen", ("qwen-*",)))
    assert asked(both, {"llama": (CANARY,)}, "food").keys() <= {("llama", "stable"), ("llama", "new")}
    theirs = Rewrite("theirs", ("qwen-3",), (("x", 1.0),))
    assert not asked(both, {"llama": (theirs,)}, "qwen-3")


def test_a_rewrite_for_all_models_is_for_those_of_its_pool_alone() -> None:
    both = config(("llama", ("*",)), ("qwen", ("qwen-*", "extra")))
    rewrites = {"llama": (CANARY, WHOLE)}
    assert asked(both, rewrites, "anything").keys() == {("llama", "base")}
    assert asked(both, rewrites, "qwen-3").keys() <= {("qwen", "")}
    assert asked(both, rewrites, "extra").keys() <= {("qwen", "")}
    assert asked(both, rewrites, "food").keys() <= {("llama", "stable"), ("llama", "new")}


def test_the_files_own_routes_come_first() -> None:
    own = config(("llama", ("*",)), routes=[{"model": "food", "pool": "llama", "rewrite_model": "mine"}])
    assert asked(own, {"llama": (CANARY,)}, "food").keys() == {("llama", "mine")}


class Told:
    """A source that is told what it tells."""

    def __init__(self, folder: Path | None = None) -> None:
        self.discovered = Discovered(lambda: None)
        self.readjusted = 0
        self.part = steering.Steered(self.discovered, self._readjust, None if folder is None else str(folder))

    def _readjust(self) -> None:
        self.readjusted += 1

    def tell(self, news: News) -> None:
        (followed,) = self.discovered._followed.values()
        self.discovered._take(followed, news)


def followed(folder: Path | None = None, pool_name: str = "llama") -> tuple[Told, Config]:
    pool = {
        "name": "llama",
        "models": ["*"],
        "discovery": {"kubernetes": {"namespace": "ml", "inference_pool": pool_name}},
    }
    made = parsed({"pools": [pool], "objectives": [{"name": "batch", "priority": -1}]})
    told = Told(folder)
    told.discovered.follow(made)
    return told, made


def test_what_is_told_is_taken_over_once_and_what_cannot_be_read_goes_on() -> None:
    told, made = followed()
    assert told.part.adjusted(made) is made
    told.tell(Steered(Steering()))
    assert told.readjusted == 0, "nothing is nothing new"
    said = Steering((("batch", -50), ("urgent", 50)), (CANARY,))
    told.tell(Steered(said))
    told.tell(Steered(said))
    told.tell(Steered(None, "HTTP 403"))
    assert told.readjusted == 1
    adjusted = told.part.adjusted(made)
    assert [(one.name, one.priority) for one in adjusted.objectives] == [("batch", -1), ("urgent", 50)]
    assert [route.name for route in adjusted.routes] == ["rewrite/canary"]
    told.tell(Steered(Steering()))
    assert told.readjusted == 2
    assert told.part.adjusted(made) is made


def test_workers_take_over_what_no_file_could_say() -> None:
    told, made = followed()
    (pool,) = made.pools
    narrow = made.model_copy(update={"pools": (pool.model_copy(update={"models": ("llama-*",)}),)})
    told.tell(Steered(Steering((("urgent", 50),), (CANARY, WHOLE))))
    adjusted = told.part.adjusted(narrow)
    assert [route.model for route in adjusted.routes] == ["food", "llama-*"]
    assert Config.model_validate_json(adjusted.model_dump_json(), context=CHECKED) == adjusted


def test_a_source_that_is_described_anew_keeps_what_it_said_of_requests() -> None:
    told, made = followed()
    told.tell(Steered(Steering((("urgent", 50),))))
    described = Discovery.model_validate({"kubernetes": {"namespace": "ml", "inference_pool": "other"}})
    (pool,) = made.pools
    told.discovered.follow(made.model_copy(update={"pools": (pool.model_copy(update={"discovery": described}),)}))
    assert told.discovered.steering()["llama"].objectives == (("urgent", 50),)


def test_what_was_said_last_goes_on_after_a_restart_until_it_is_said_anew(tmp_path: Path) -> None:
    told, made = followed(tmp_path)
    told.part.adjusted(made)
    told.tell(Steered(Steering((("urgent", 50),), (CANARY, WHOLE))))
    expected = told.part.adjusted(made)
    again, made = followed(tmp_path)
    assert again.part.adjusted(made) == expected
    again.tell(Steered(Steering((("urgent", 40),))))
    assert [one.priority for one in again.part.adjusted(made).objectives] == [-1, 40]
    # What was deleted meanwhile is obeyed no longer.
    third, made = followed(tmp_path)
    assert third.part.adjusted(made) is not made
    third.tell(Steered(Steering()))
    assert (third.readjusted, third.part.adjusted(made)) == (1, made)
    # Another InferencePool never said so.
    told.tell(Steered(Steering((("urgent", 1),))))
    other, made = followed(tmp_path, "other")
    assert other.part.adjusted(made) is made
    (tmp_path / steering.FILE).write_text('{"llama": {"of": 7}}')
    broken, made = followed(tmp_path)
    assert broken.part.adjusted(made) is made
