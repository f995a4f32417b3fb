import pytest

from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import ask


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/responses/resp_1", "/v1/responses/resp_1/cancel"])
async def test_no_stored_response_is_served_by_any_method(method: str, path: str) -> None:
    desk = FakeDesk()

    result = await ask(desk, {":method": method, ":path": path}, None)

    assert (result.status, result.fault["code"]) == (404, "response_not_found")
    assert desk.refusals == [("stored_responses", "", "", 404, "stateful")]


async def test_the_list_of_responses_is_no_list() -> None:
    result = await ask(FakeDesk(), {":method": "GET", ":path": "/v1/responses"}, None)

    assert (result.status, result.headers["allow"]) == (405, "POST")
