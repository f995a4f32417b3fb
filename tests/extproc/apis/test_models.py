import json

import pytest

from extproc.apis.models import answer
from extproc.desk import Catalogue
from extproc.errors import ApiError
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import ask

SERVED = Catalogue(("small", "org/large"), 1_700_000_000)


def test_the_list_has_every_model_in_openais_shape() -> None:
    assert json.loads(answer("/v1/models", SERVED)) == {
        "object": "list",
        "data": [
            {"id": "small", "object": "model", "created": 1_700_000_000, "owned_by": "tidegate"},
            {"id": "org/large", "object": "model", "created": 1_700_000_000, "owned_by": "tidegate"},
        ],
    }


def test_nothing_written_out_is_an_empty_list_and_not_an_error() -> None:
    assert json.loads(answer("/v1/models", Catalogue()))["data"] == []


@pytest.mark.parametrize("path", ["/v1/models/org/large", "/v1/models/org%2Flarge"])
def test_one_model_is_found_by_its_name_slashes_included(path: str) -> None:
    assert json.loads(answer(path, SERVED))["id"] == "org/large"


@pytest.mark.parametrize("name", ["other", "small/", "SMALL", "%ff%fe", "org"])
def test_an_unknown_model_is_not_found(name: str) -> None:
    with pytest.raises(ApiError, match="does not exist") as caught:
        answer(f"/v1/models/{name}", SERVED)

    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


async def test_it_is_answered_at_the_headers_and_holds_nothing() -> None:
    desk = FakeDesk()

    result = await ask(desk, {":method": "GET", ":path": "/v1/models?limit=3"}, None)

    assert (result.kind, result.status, result.details) == ("answered", 200, "tidegate_answered")
    assert result.headers == {"content-type": "application/json"}
    assert [model["id"] for model in json.loads(result.body)["data"]] == ["m", "org/model"]
    assert result.metadata == {"tidegate": {"api": "models"}}
    assert (desk.live, desk.requests, desk.refusals) == (set(), [], [])


async def test_an_unknown_model_is_a_refusal_under_its_api() -> None:
    desk = FakeDesk()

    result = await ask(desk, {":method": "GET", ":path": "/v1/models/none"}, None)

    assert (result.status, result.fault["param"]) == (404, "model")
    assert desk.refusals == [("models", "", "", 404, "unknown_model")]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m"])
async def test_models_are_only_read(path: str) -> None:
    result = await ask(FakeDesk(), {":method": "DELETE", ":path": path}, None)

    assert (result.status, result.headers["allow"]) == (405, "GET")


async def test_a_body_that_nobody_needs_changes_nothing() -> None:
    result = await ask(FakeDesk(), {":method": "GET", ":path": "/v1/models/org/model"}, b"{}")

    assert (result.status, json.loads(result.body)["id"]) == (200, "org/model")
