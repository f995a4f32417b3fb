"""The check ``model_loaded``: the list of models names the one that is served."""

from typing import Any

import pytest

from tests.engines.checks.asked import asked, check, saying
from tests.engines.engine_server import answering
from tidegate.engines.check import Finding


def listing(*names: str) -> Any:
    return saying({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


@pytest.mark.parametrize(
    ("names", "models", "finding"),
    [
        (("llama",), ("llama",), Finding.PASSED),
        (("base", "llama"), ("llama", "alias"), Finding.PASSED),
        (("base",), ("llama",), Finding.FAILED),
        ((), ("llama",), Finding.FAILED),
        (("anything",), (), Finding.PASSED),
        ((), (), Finding.FAILED),
    ],
)
async def test_the_model_has_to_be_listed(names: tuple[str, ...], models: tuple[str, ...], finding: Finding) -> None:
    found, heads = await asked(check(name="model_loaded"), listing(*names), models=models)
    assert found.finding is finding
    assert found.reason == ("" if finding is Finding.PASSED else "model_missing")
    assert heads == ["GET /v1/models"]


async def test_one_that_is_asked_for_has_to_be_there_whatever_the_pool_serves() -> None:
    settings = check(name="model_loaded", model="big", path="/models")
    found, heads = await asked(settings, listing("llama"), models=("llama",))
    assert found.finding is Finding.FAILED
    assert heads == ["GET /models"]


async def test_an_engine_that_still_loads_fails() -> None:
    loading = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    found, _ = await asked(check(name="model_loaded"), saying(loading, "503 Service Unavailable"))
    assert found.finding is Finding.FAILED


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"data": [1]}', '{"data": [{"id": null}]}', "<html>", "[" * 100_000])
async def test_what_is_no_list_fails(body: str) -> None:
    found, _ = await asked(check(name="model_loaded"), answering(body))
    assert (found.finding, found.reason) == (Finding.FAILED, "unreadable")
