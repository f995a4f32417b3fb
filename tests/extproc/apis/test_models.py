import json
from typing import Any

import pytest

from extproc.apis.models import answer
from extproc.desk import Catalogue
from extproc.errors import ApiError
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import ask

SERVED = Catalogue(("small", "org/large"), 1_700_000_000)


def test_a_model_that_a_pattern_matches_can_be_looked_up_although_it_is_not_listed() -> None:
    catalogue = Catalogue(("m",), 1, serves=lambda model: model.startswith("small-"))
    found = json.loads(answer({":path": "/v1/models/small-1"}, catalogue))
    assert found["id"] == "small-1"
    assert [one["id"] for one in json.loads(answer({":path": "/v1/models"}, catalogue))["data"]] == ["m"]
    with pytest.raises(ApiError, match="does not exist"):
        answer({":path": "/v1/models/large-1"}, catalogue)


def test_the_list_has_every_model_in_openais_shape() -> None:
    assert json.loads(answer({":path": "/v1/models"}, SERVED)) == {
        "object": "list",
        "data": [
            {"id": "small", "object": "model", "created": 1_700_000_000, "owned_by": "tidegate"},
            {"id": "org/large", "object": "model", "created": 1_700_000_000, "owned_by": "tidegate"},
        ],
    }


def test_nothing_written_out_is_an_empty_list_and_not_an_error() -> None:
    assert json.loads(answer({":path": "/v1/models"}, Catalogue()))["data"] == []


@pytest.mark.parametrize("path", ["/v1/models/org/large", "/v1/models/org%2Flarge"])
def test_one_model_is_found_by_its_name_slashes_included(path: str) -> None:
    assert json.loads(answer({":path": path}, SERVED))["id"] == "org/large"


@pytest.mark.parametrize("name", ["other", "small/", "SMALL", "%ff%fe", "org"])
def test_an_unknown_model_is_not_found(name: str) -> None:
    with pytest.raises(ApiError, match="does not exist") as caught:
        answer({":path": f"/v1/models/{name}"}, SERVED)

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


MANY = Catalogue(tuple(f"m{number}" for number in range(45)), 1_700_000_000)


def _anthropics(path: str, catalogue: Catalogue = MANY) -> dict[str, Any]:
    told = json.loads(answer({":path": path, "anthropic-version": "2023-06-01"}, catalogue))
    assert isinstance(told, dict)
    return told


def test_anthropics_clients_get_its_form() -> None:
    small = {"type": "model", "id": "small", "display_name": "small", "created_at": "2023-11-14T22:13:20Z"}

    listed = _anthropics("/v1/models", SERVED)

    assert (listed["data"][0], listed["has_more"]) == (small, False)
    assert (listed["first_id"], listed["last_id"]) == ("small", "org/large")
    assert _anthropics("/v1/models/small", SERVED) == small
    assert _anthropics("/v1/models", Catalogue()) == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_anthropics_list_is_read_page_by_page_in_both_directions() -> None:
    page = _anthropics("/v1/models")
    seen = [model["id"] for model in page["data"]]
    assert len(seen) == 20
    while page["has_more"]:
        page = _anthropics(f"/v1/models?limit=7&after_id={page['last_id']}")
        seen += [model["id"] for model in page["data"]]
    assert seen == list(MANY.models)
    page = _anthropics("/v1/models?before_id=m10&limit=6")
    assert ([model["id"] for model in page["data"]], page["has_more"]) == ([f"m{at}" for at in range(4, 10)], True)
    assert _anthropics("/v1/models?before_id=m4&limit=6")["has_more"] is False


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "after_id=nothing", "before_id="])
def test_a_page_that_is_not_there_is_refused_by_what_asked_for_it(query: str) -> None:
    if query == "before_id=":  # an empty value is none
        assert len(_anthropics(f"/v1/models?{query}")["data"]) == 20
        return
    with pytest.raises(ApiError) as caught:
        _anthropics(f"/v1/models?{query}")

    assert (caught.value.status, caught.value.param) == (400, query.partition("=")[0])


async def test_an_unknown_model_is_told_in_the_form_of_who_asked() -> None:
    result = await ask(FakeDesk(), {":method": "GET", ":path": "/v1/models/x", "anthropic-version": "1"}, None)

    assert (result.status, json.loads(result.body)["error"]["type"]) == (404, "not_found_error")
