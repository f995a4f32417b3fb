import pkgutil

import pytest

from extproc import apis
from extproc.apis import APIS, match
from extproc.errors import ApiError

HEADERS = {":method": "POST", ":path": "/v1/completions"}


def test_every_file_is_an_api_under_its_own_name() -> None:
    names = {entry.name for entry in pkgutil.iter_modules(apis.__path__)}

    assert {api.name for api in APIS.values()} == names
    assert {"chat_completions", "completions", "embeddings"} <= names
    assert all(path == api.path for path, api in APIS.items())


EXACT = [api for api in APIS.values() if not api.path.endswith("/")]


def test_every_api_is_either_parsed_or_answered() -> None:
    assert all(sum(way is not None for way in (api.parse, api.parse_form, api.answer)) == 1 for api in APIS.values())


@pytest.mark.parametrize("api", EXACT, ids=lambda api: api.path)
def test_every_api_is_found_by_its_path(api: apis.Api) -> None:
    for path in (api.path, f"{api.path}?api-version=1"):
        found = match({":method": api.method, ":path": path})
        assert (found.name, found.path) == (api.name, api.path)
        assert (found.parse is None) == (api.answer is not None), "a form is parsed as soon as its boundary is known"


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/completions/", "/V1/completions", "v1/completions", "?x=1"])
def test_an_unknown_path_is_not_found_and_not_repeated(path: str) -> None:
    with pytest.raises(ApiError, match="There is no such path") as caught:
        match({**HEADERS, ":path": path})

    assert (caught.value.status, caught.value.reason) == (404, "unknown_path")
    assert "POST /v1/completions" in caught.value.message


def test_a_secret_in_a_path_is_not_repeated() -> None:
    with pytest.raises(ApiError) as caught:
        match({**HEADERS, ":path": "/v1/sk-secret"})

    assert b"secret" not in caught.value.body()


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "post", ""])
def test_a_wrong_method_is_told_the_right_one(method: str) -> None:
    with pytest.raises(ApiError) as caught:
        match({**HEADERS, ":method": method})

    assert (caught.value.status, dict(caught.value.headers)) == (405, {"allow": "POST"})


def test_headers_that_are_not_there_match_nothing() -> None:
    with pytest.raises(ApiError):
        match({})


@pytest.mark.parametrize("path", ["/v1/..%2fadmin", "/v1/completions%2F", "/a%5Cb", "/v1%2fcompletions"])
@pytest.mark.parametrize("pass_on", [False, True])
def test_an_escaped_slash_is_refused_wherever_an_engine_might_read_it(path: str, *, pass_on: bool) -> None:
    with pytest.raises(ApiError) as caught:
        match({**HEADERS, ":path": path}, pass_on=pass_on)

    assert (caught.value.status, caught.value.reason) == (400, "escaped_slash")


def test_an_escaped_slash_in_the_name_of_a_model_is_part_of_it() -> None:
    assert match({":method": "GET", ":path": "/v1/models/org%2Fmodel"}, pass_on=True).name == "models"
    assert match({**HEADERS, ":path": "/v1/completions?x=%2f"}).name == "completions"
