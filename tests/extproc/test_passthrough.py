import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.passthrough import MAX_ESTIMATED_TOKENS, parse
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import ask
from tidegate.tokens.count import CountSource, TokenCount


def _desk() -> FakeDesk:
    desk = FakeDesk()
    desk.unknown_paths = "rest"
    return desk


@given(st.binary())
def test_any_bytes_are_passed_on_and_estimated_by_their_number(body: bytes) -> None:
    parsed = parse(body)

    assert (parsed.model, parsed.texts, parsed.max_output_tokens) == ("", (), None)
    assert parsed.overhead_tokens == len(body) // 4


def test_a_recording_is_no_prompt_of_its_length() -> None:
    assert parse(bytes(20_000_000)).overhead_tokens == MAX_ESTIMATED_TOKENS


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({":method": "POST", ":path": "/v1/files", "content-type": "multipart/form-data"}, b"--x" * 40),
        ({":method": "PUT", ":path": "/v1/files/", "content-encoding": "gzip"}, b"\x1f\x8b" * 60),
        ({":method": "GET", ":path": "/version"}, None),
    ],
)
async def test_an_unknown_path_goes_to_its_pool(headers: dict[str, str], body: bytes | None) -> None:
    desk = _desk()

    result = await ask(desk, headers, body)

    (request,) = desk.requests
    assert (result.kind, request.pool, request.api, request.model) == ("routed", "rest", "unknown_path", "")
    assert request.prompt == TokenCount(30 if body else 0, CountSource.BYTES)
    assert (desk.counted, result.metadata["tidegate"]["usage"]) == ([], "none")


async def test_a_known_path_is_read_as_ever() -> None:
    desk = _desk()

    assert (await ask(desk)).kind == "routed"
    assert desk.requests[0].pool == ""
    assert (await ask(desk, {":method": "GET", ":path": "/v1/completions"}, None)).status == 405
