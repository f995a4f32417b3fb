"""Reading a form (``multipart/form-data``): the few fields that a decision needs, and how large its files are.

The boundary is the one that the header names, never one guessed from the body: the engine goes by the header, and what
stood before it would be read here alone. For the same reason a form begins with it, and a field that counts is given
once.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from multipart import MultipartSegment, PushMultipartParser, parse_options_header

from extproc.errors import ApiError, wrong_type, wrong_value
from extproc.fields import twice

FORM: Final = "multipart/form-data"

MAX_PARTS: Final = 256
"""The most parts of a form: the largest of these APIs has 16 images and a dozen fields."""

MAX_BOUNDARY_BYTES: Final = 256
"""The longest boundary; RFC 2046 allows 70."""

MAX_FIELD_BYTES: Final = 131_072
"""The longest field that is read: four times what OpenAI allows of a prompt."""

_SLICE: Final = 65_536
"""Bytes read in one go; between them other threads have their turn."""


class Form(NamedTuple):
    """What was found in a form.

    Attributes:
        fields: the texts that were wanted, by name; those that are there.
        files: the bytes of every part that bears a file's name, in order.
    """

    fields: Mapping[str, str]
    files: tuple[int, ...]


def is_json(content_type: str) -> bool:
    """Return whether a header ``content-type`` says that the body is JSON."""
    return bool(parse_options_header(content_type)[0] == "application/json")


def read(body: bytes, content_type: str, wanted: Iterable[str]) -> Form:
    """Return the fields ``wanted`` of the form ``body``, and the sizes of its files.

    Raises:
        ApiError: 415, it is no form; 400, it is none that can be read, or a field is given twice or is too long.
    """
    kind, options = parse_options_header(content_type)
    if kind != FORM:
        raise ApiError(415, f"The request's body must be {FORM}.", reason="unsupported_media_type", code="invalid_type")
    if not body:
        raise ApiError(400, "The request has no body; a form is expected.", code="empty_body")
    malformed = ApiError(400, "The request's body is not a valid form.", code="invalid_form")
    boundary = options.get("boundary", "").encode()
    if not 1 <= len(boundary) <= MAX_BOUNDARY_BYTES or not body.startswith(b"--" + boundary):
        raise malformed
    found = _Found(frozenset(wanted))
    try:
        with PushMultipartParser(boundary, max_segment_count=MAX_PARTS) as parser:
            for start in range(0, len(body), _SLICE):
                for event in parser.parse(body[start : start + _SLICE]):
                    found.take(event)
    except ValueError:  # the parser's errors are, and so is a field that is no text
        raise malformed from None
    return Form(found.fields, tuple(found.files))


class _Found:
    """What has been found so far, and in which part the parser is."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.fields: dict[str, str] = {}
        self.files: list[int] = []
        self._wanted = wanted
        self._name: str | None = None
        self._is_file = False
        self._text = bytearray()

    def take(self, event: MultipartSegment | bytes | bytearray | None) -> None:
        if isinstance(event, MultipartSegment):
            self._begin(event)
        elif event is None:
            if self._name is not None:
                self.fields[self._name] = self._text.decode()
        else:
            self._add(event)

    def _begin(self, part: MultipartSegment) -> None:
        self._is_file = part.filename is not None
        self._name = part.name if part.name in self._wanted else None
        self._text.clear()
        if self._is_file:
            self.files.append(0)
        if self._name is None:
            return
        if self._is_file:
            raise wrong_type(self._name, "a text, not a file")
        if self._name in self.fields:
            raise twice(self._name)

    def _add(self, data: bytes | bytearray) -> None:
        if self._is_file:
            self.files[-1] += len(data)
        elif self._name is not None:
            self._text += data
            if len(self._text) > MAX_FIELD_BYTES:
                raise wrong_value(self._name, f"at most {MAX_FIELD_BYTES} bytes long")
