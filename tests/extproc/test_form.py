import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc import form as reader
from extproc.apis import APIS
from extproc.body import ParsedBody
from extproc.conversation import IMAGE_TOKENS
from extproc.errors import ApiError
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, ask
from tests.extproc.forms import BOUNDARY, CONTENT_TYPE, form, part

TRANSCRIPTIONS, EDITS = "/v1/audio/transcriptions", "/v1/images/edits"
FORMS = (TRANSCRIPTIONS, "/v1/audio/translations", EDITS, "/v1/images/variations")
RECORDING = part("file", b"\0\r\n--\xff" * 200_000, "talk.mp3")


def _parse(path: str, body: bytes, content_type: str = CONTENT_TYPE) -> ParsedBody:
    parse = APIS[path].parse_form
    assert parse is not None
    return parse(body, content_type)


def test_a_recording_counts_by_its_size_and_its_model_is_found_behind_it() -> None:
    body = form(RECORDING, part("model", "whisper"), part("prompt", "names: Ada"), part("stream", "true"))

    assert _parse(TRANSCRIPTIONS, body) == ParsedBody("whisper", ("names: Ada",), 0, 1000, None, stream=True)


def test_a_long_recording_is_bounded() -> None:
    assert _parse(TRANSCRIPTIONS, form(part("file", b"\0" * 50_000_000, "a.wav"))).overhead_tokens == 36_000


def test_pictures_count_one_by_one() -> None:
    pictures = [part("image[]", b"\x89PNG", f"{number}.png") for number in range(3)]
    parsed = _parse(EDITS, form(*pictures, part("prompt", "brighter"), part("model", "m"), part("n", "2")))

    assert (parsed.model, parsed.texts, parsed.choices) == ("m", ("brighter",), 2)
    assert parsed.overhead_tokens == 3 * IMAGE_TOKENS


def test_pictures_may_be_named_in_json_too() -> None:
    assert _parse(EDITS, b'{"model": "m", "prompt": "a", "n": 2}', "application/json; charset=utf-8").choices == 2


@pytest.mark.parametrize("path", FORMS)
def test_a_form_without_a_model_names_none(path: str) -> None:
    assert _parse(path, form(RECORDING)).model == ""


REFUSED = {
    "empty": (b"", CONTENT_TYPE, 400, "empty_body"),
    "no boundary": (form(), "multipart/form-data", 400, "invalid_form"),
    "another boundary": (form(part("model", "m"), boundary="y"), CONTENT_TYPE, 400, "invalid_form"),
    "before the boundary": (b"\r\n" + form(part("model", "m")), CONTENT_TYPE, 400, "invalid_form"),
    "a long boundary": (form(boundary="y" * 300), f"multipart/form-data; boundary={'y' * 300}", 400, "invalid_form"),
    "cut short": (form(part("model", "m"))[:-8], CONTENT_TYPE, 400, "invalid_form"),
    "json": (b"{}", "application/json", 415, "invalid_type"),
    "no type": (form(part("model", "m")), "", 415, "invalid_type"),
    "two models": (form(part("model", "m"), part("model", "dear")), CONTENT_TYPE, 400, "duplicate_parameter"),
    "a model in a file": (form(part("model", "m", "m.txt")), CONTENT_TYPE, 400, "invalid_type"),
    "a model of bytes": (form(part("model", b"\xff\xfe")), CONTENT_TYPE, 400, "invalid_form"),
    "an empty model": (form(part("model", "")), CONTENT_TYPE, 400, "invalid_value"),
    "a long model": (form(part("model", "m" * 300)), CONTENT_TYPE, 400, "invalid_value"),
    "a huge field": (form(part("prompt", "m" * 200_000)), CONTENT_TYPE, 400, "invalid_value"),
    "many parts": (form(*[part("x", "y")] * 300), CONTENT_TYPE, 400, "invalid_form"),
    "no headers": (form(b"model"), CONTENT_TYPE, 400, "invalid_form"),
    "long headers": (form(part("m" * 10_000, "x")), CONTENT_TYPE, 400, "invalid_form"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("path", [TRANSCRIPTIONS, "/v1/images/variations"])
async def test_what_is_no_such_form_is_refused(case: str, path: str) -> None:
    body, content_type, status, code = REFUSED[case]
    if case == "json" and path.startswith("/v1/images"):
        status, code = 400, "missing_required_parameter"

    result = await ask(FakeDesk(), {**POST, ":path": path, "content-type": content_type}, body)

    assert (result.kind, result.status, result.fault["code"]) == ("answered", status, code)


@pytest.mark.parametrize("path", FORMS)
async def test_a_form_is_routed_by_its_model(path: str) -> None:
    desk = FakeDesk()
    body = form(RECORDING, part("model", "m"))

    result = await ask(desk, {**POST, ":path": path, "content-type": CONTENT_TYPE}, body)

    assert (result.kind, result.metadata["tidegate"]["model"]) == ("routed", "m")
    assert result.metadata["tidegate"]["usage"] == "none"
    assert desk.requests[0].api == APIS[path].name


@pytest.mark.parametrize("size", range(65_480, 65_560, 3))
def test_a_model_that_lies_across_two_slices_is_read_whole(size: int) -> None:
    body = form(part("file", b"\r" * (size - 120), "a"), part("model", "some-model"), part("prompt", "hi"))

    assert dict(reader.read(body, CONTENT_TYPE, ("model", "prompt")).fields) == {"model": "some-model", "prompt": "hi"}


@given(st.lists(st.tuples(st.sampled_from(["model", "prompt", "file"]), st.binary(max_size=40)), max_size=6))
def test_what_a_form_holds_is_read_as_it_was_written(parts: list[tuple[str, bytes]]) -> None:
    body = form(*(part(name, value, "f" if name == "file" else None) for name, value in parts))
    try:
        found = reader.read(body, CONTENT_TYPE, ("model", "prompt"))
    except ApiError:
        return
    assert list(found.files) == [len(value) for name, value in parts if name == "file"]
    assert {name: text.encode() for name, text in found.fields.items()} == {
        name: value for name, value in parts if name != "file"
    }


@given(st.binary(max_size=300), st.text(max_size=60), st.sampled_from(FORMS))
def test_whatever_bytes_and_whatever_type_nothing_but_a_refusal_is_raised(
    body: bytes, content_type: str, path: str
) -> None:
    for kind in (content_type, CONTENT_TYPE, f"multipart/form-data; boundary={content_type}"):
        for whole in (body, f"--{BOUNDARY}\r\n".encode() + body, form(body)):
            with contextlib.suppress(ApiError):
                assert len(_parse(path, whole, kind).model) <= 256
