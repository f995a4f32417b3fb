r"""From a request's body to what a decision needs of it.

Most engines read bodies with Python's own JSON parser, which takes more than JSON is. So there are two ways in:

1. msgspec into a structure with the needed fields alone (``fields``): the way of nearly all bodies.
2. Where msgspec says no: Python's parser, for bodies up to ``LENIENT_BYTES``. It takes what msgspec does not and
   engines do: NaN and infinities, unpaired surrogates (``"\ud83d"``, from clients that cut a string in the middle of
   an emoji), a byte order mark, UTF-16 and UTF-32.

What neither can read is refused; nobody could say where it should go.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from extproc import density, fields
from extproc.errors import ApiError, missing, wrong_type, wrong_value
from extproc.fields import Fields
from tidegate.tokens.prompt import Conversation, Prompt

LENIENT_BYTES = 4_194_304
"""Largest body in bytes for the second way. It takes 5 ms for a text of this size, and 50 ms for as many values as
``density`` allows (measured). In UTF-16 and UTF-32, of which ``density`` understands nothing, a body may have
``density.UNCHECKED_BYTES``."""

MAX_ITEMS = 100_000
"""The most messages, parts and calls together, or prompts, of one request. They are looked at one by one, on the event
loop: ten million empty messages, which is 30 MB, kept every other request waiting for nine seconds (measured)."""

MAX_MODEL_CHARACTERS = 256
"""The longest model name; the configuration allows no longer ones either."""

MAX_TOKENS = 10_000_000
"""Where a limit on output tokens is clamped: more than any model can hold."""

MAX_CHOICES = 1024
"""Where the number of choices is clamped: more than any engine serves at once."""

_DIGITS = re.compile("[0-9]{1,20}", re.ASCII)


class Chat(NamedTuple):
    """A conversation as it came.

    Attributes:
        messages: as they were given.
        tools: their JSON text; empty for none.
        options: what the client wants the chat template to know, whatever that is.
    """

    messages: Any
    tools: bytes | msgspec.Raw = b""
    options: Any = None


class ParsedBody(NamedTuple):
    """What a decision needs of a body.

    Attributes:
        model: the model's name as written; empty when none is named, where an API allows that.
        texts: what is to be tokenised.
        known_tokens: prompt tokens that came as token ids.
        overhead_tokens: an estimate of what is neither text nor token id: images, audio, files.
        max_output_tokens: the most tokens of one choice; ``None`` when the client set no limit, 0 where nothing is
            generated.
        stream: whether the answer is streamed.
        choices: how many answers are generated.
        conversation: its shape where a chat template lays the texts out.
        salt: what keeps the engine's cache of this prompt apart from others; empty for none.
        session: what stands for its session, where the body is to say; empty for none.
        given: a single prompt as it came, a text, token ids or a conversation; ``None`` for anything else.
    """

    model: str
    texts: tuple[str, ...]
    known_tokens: int = 0
    overhead_tokens: int = 0
    max_output_tokens: int | None = None
    stream: bool = False
    choices: int = 1
    conversation: Conversation | None = None
    salt: str = ""
    session: str = ""
    given: str | list[int] | Chat | None = None

    @property
    def prompt(self) -> Prompt:
        """The prompt, as it is to be counted."""
        return Prompt(self.texts, self.conversation, self.known_tokens + self.overhead_tokens)


def read(body: bytes, shape: type[Fields], understand: Callable[[Fields], ParsedBody]) -> ParsedBody:
    """Read ``body`` and have ``understand`` judge its fields.

    The fields are declared as ``Any``, or as ``Raw`` where only their JSON text counts; ``understand`` checks their
    types. Those declared as ``Any`` may be given once.

    Raises:
        ApiError: it cannot be read, holds too much, or ``understand`` refuses it.
    """
    if not body:
        raise ApiError(400, "The request has no body; a JSON object is expected.", code="empty_body")
    density.check(body)
    try:
        try:
            given = fields.decode(body, shape)
        except msgspec.DecodeError:
            return _mended(understand(_read_leniently(body, shape)))
        return understand(given)
    except RecursionError:
        raise ApiError(400, "The request's body is nested too deeply.", code="invalid_json") from None


def _read_leniently(body: bytes, shape: type[Fields]) -> Fields:
    malformed = ApiError(400, "The request's body is not valid JSON.", code="invalid_json")
    if len(body) > (LENIENT_BYTES if json.detect_encoding(body).startswith("utf-8") else density.UNCHECKED_BYTES):
        raise malformed
    members: list[tuple[str, Any]] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal members
        members = pairs  # of the object that ends last, which is the whole
        return dict(pairs)

    try:
        # ValueError covers malformed JSON, bytes that are no text, and integers of thousands of digits.
        value = json.loads(body, object_pairs_hook=note)
        if not isinstance(value, dict):
            raise ApiError(400, "The request's body must be a JSON object.", code="invalid_type")
        return _shaped(value, [name for name, _ in members], shape)
    except ValueError:
        raise malformed from None


def _shaped(value: dict[str, Any], names: list[str], shape: type[Fields]) -> Fields:
    """Return the fields of ``shape`` in ``value``, whose members had these ``names``."""
    needed = {field.encode_name: field for field in msgspec.structs.fields(shape) if field.encode_name in value}
    for name, number in Counter(names).items():
        if number > 1 and name in needed and needed[name].type is not msgspec.Raw:
            raise fields.twice(name)
    return shape(
        **{
            field.name: msgspec.Raw(json.dumps(value[name])) if field.type is msgspec.Raw else value[name]
            for name, field in needed.items()
        }
    )


def read_by_python(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object ``body`` as Python's parser reads it, the second way in; ``None`` for anything else."""
    if len(body) > LENIENT_BYTES or not json.detect_encoding(body).startswith("utf-8"):
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _mended(parsed: ParsedBody) -> ParsedBody:
    """Replace unpaired surrogates, which no tokeniser takes and no UTF-8 can carry."""
    return parsed._replace(texts=tuple(text.encode("utf-8", "replace").decode() for text in parsed.texts))


def model_name(value: Any) -> str:
    """Return the ``model`` of a request.

    Raises:
        ApiError: it is missing, or not a name.
    """
    if value is None:
        raise missing("model")
    if not isinstance(value, str):
        raise wrong_type("model", "a string")
    if not value:
        raise wrong_value("model", "the name of a model, not empty")
    if len(value) > MAX_MODEL_CHARACTERS:
        raise wrong_value("model", f"a name of at most {MAX_MODEL_CHARACTERS} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrong_value("model", "valid Unicode") from None
    return value


def model_or_none(value: Any) -> str:
    """Return the ``model`` of a request that may do without; empty when it has none.

    Raises:
        ApiError: it is not a name.
    """
    return "" if value is None else model_name(value)


def required_text(param: str, value: Any) -> str:
    """Return a field that must be there and be a text.

    Raises:
        ApiError: it is absent, null, or something else.
    """
    if value is None:
        raise missing(param)
    if not isinstance(value, str):
        raise wrong_type(param, "a string")
    return value


def whole_number(param: str, value: Any) -> int | None:
    """Return a field that counts something, 1 or more; ``None`` when it is absent or null.

    ``100.0`` and ``"100"`` count as 100: engines take them.

    Raises:
        ApiError: it is no whole number, or below 1.
    """
    if (isinstance(value, float) and value.is_integer()) or (isinstance(value, str) and _DIGITS.fullmatch(value)):
        value = int(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(param, "a whole number")
    if value < 1:
        raise wrong_value(param, "at least 1")
    return value


def cache_salt(value: Any) -> str:
    """Return vLLM's ``cache_salt``; an engine refuses one that is not text, or takes no notice of it."""
    return value if isinstance(value, str) else ""


def token_limit(**limits: Any) -> int | None:
    """Return the first of the limits that is given, in tokens, clamped to ``MAX_TOKENS``.

    Raises:
        ApiError: that one is no whole number, or below 1.
    """
    for param, value in limits.items():
        limit = whole_number(param, value)
        if limit is not None:
            return min(limit, MAX_TOKENS)
    return None


def choice_count(**counts: Any) -> int:
    """Return the largest of the counts that are given, 1 when none is, clamped to ``MAX_CHOICES``.

    Raises:
        ApiError: one is no whole number, or below 1.
    """
    return min(max(whole_number(param, value) or 1 for param, value in counts.items()), MAX_CHOICES)


def check_stream_options(value: Any) -> None:
    """Check that the options of a stream are an object, or not given.

    Raises:
        ApiError: they are something else.
    """
    if value is not None and not isinstance(value, dict):
        raise wrong_type("stream_options", "an object")


def truth(value: Any) -> bool:
    """Return whether a flag is set, in any of the spellings that pydantic, and so the engines, take for true."""
    if isinstance(value, str):
        return value.lower() in {"1", "t", "true", "y", "yes", "on"}
    return value is True or value == 1
