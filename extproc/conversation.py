"""What a conversation puts into a prompt: the texts to tokenise, and an estimate of everything else.

Only what no engine could serve is refused. A part of a kind that is not known counts as nothing, and nothing that is
not text is ever tokenised: an image of a megabyte is not a million characters of prompt.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from extproc import image_size
from extproc.body import MAX_ITEMS
from extproc.errors import missing, wrong_type, wrong_value
from tidegate.tokens import images
from tidegate.tokens.prompt import Conversation

INSTRUCTING = ("system", "developer")
"""Roles of messages that instruct the model."""

IMAGE_TOKENS = images.tokens("", None)
"""An image of the usual size for GPT-4o. Where one is behind a URL, its size is not known: nothing is ever fetched."""

AUDIO_BYTES_PER_TOKEN = 1600
"""Base64 characters of audio per token, roughly."""

AUDIO_TOKENS = 300
"""Audio behind a URL: half a minute at 10 tokens per second."""

VIDEO_TOKENS = 8 * IMAGE_TOKENS
"""Video: eight frames, as engines sample it."""

FILE_TOKENS = 1500
"""A document: about three pages of text."""

_IMAGES = frozenset({"image_url", "input_image", "image", "image_embeds"})

_FLAT = {
    "audio_url": AUDIO_TOKENS,
    "input_audio": AUDIO_TOKENS,
    "video_url": VIDEO_TOKENS,
    "file": FILE_TOKENS,
    "input_file": FILE_TOKENS,
}

_TEXT_KEYS = ("text", "refusal", "thinking")


class Contribution(NamedTuple):
    """What messages put into the prompt.

    Attributes:
        texts: what is to be tokenised.
        tokens: an estimate of images, audio and files.
        shape: the shape of the conversation, by which the model's chat template adds tokens, without its tools;
            ``None`` where no template lays the texts out.
    """

    texts: list[str]
    tokens: int
    shape: Conversation | None = None


def of_messages(messages: Any, model: str = "") -> Contribution:
    """Return what the messages of a conversation put into the prompt of ``model``.

    Raises:
        ApiError: they are missing, too many, or not messages.
    """
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of messages")
    if not messages:
        raise wrong_value("messages", "at least one message")
    texts: list[str] = []
    tokens = instructions = names = 0
    items = len(messages)
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise wrong_type(f"messages[{place}]", "an object")
        items += _length(message.get("content")) + _length(message.get("tool_calls"))
        if items > MAX_ITEMS:
            raise wrong_value("messages", f"at most {MAX_ITEMS} messages, parts and calls together")
        instructions += message.get("role") in INSTRUCTING
        tokens += add_content(message.get("content"), f"messages[{place}].content", texts, model)
        if isinstance(name := message.get("name"), str):
            texts.append(name)
            names += 1
        _add_calls(message, texts)
    return Contribution(texts, tokens, Conversation(len(messages), instructions, names))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def with_schemas(shape: Conversation | None, schemas: Sequence[str]) -> Conversation | None:
    """Return ``shape`` with the tools' JSON texts, which the chat template lays out as well."""
    return shape and shape._replace(schema_characters=sum(map(len, schemas)))


def of_schemas(**fields: msgspec.Raw) -> list[str]:
    """Return tool schemas as their JSON text, which is what most chat templates put into the prompt.

    A field that is absent or null puts in nothing.

    Raises:
        ApiError: one is not an array.
    """
    texts = []
    for param, raw in fields.items():
        text = bytes(raw).decode("utf-8", "replace").strip()
        if text in {"", "null"}:
            continue
        if not text.startswith("["):
            raise wrong_type(param, "an array")
        texts.append(text)
    return texts


def add_content(content: Any, param: str, texts: list[str], model: str = "") -> int:
    """Add the texts of one message's content to ``texts``; return an estimate of its other tokens for ``model``.

    Raises:
        ApiError: it is neither a text nor parts; ``param`` names it.
    """
    if content is None:
        return 0
    if isinstance(content, str):
        texts.append(content)
        return 0
    if not isinstance(content, list):
        raise wrong_type(param, "a string or an array of parts")
    tokens = 0
    for place, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            texts += [text for key in _TEXT_KEYS if isinstance(text := part.get(key), str)]
            tokens += _media_tokens(part, model)
        else:
            raise wrong_type(f"{param}[{place}]", "a string or an object")
    return tokens


def _media_tokens(part: dict[str, Any], model: str) -> int:
    audio = part.get("input_audio")
    if isinstance(audio, dict) and isinstance(data := audio.get("data"), str):
        return max(1, len(data) // AUDIO_BYTES_PER_TOKEN)
    kind = part.get("type")
    if not isinstance(kind, str):
        return 0
    return _image_tokens(part, model) if kind in _IMAGES else _FLAT.get(kind, 0)


def _image_tokens(part: dict[str, Any], model: str) -> int:
    """Return the tokens of an image in any of the spellings, its size read from its data where they are here."""
    image, source = part.get("image_url"), part.get("source")
    held = image if isinstance(image, dict) else part
    url = held.get("url") if held is image else image
    size = None
    if isinstance(url, str):
        size = image_size.of_data_url(url)
    elif isinstance(source, dict) and isinstance(data := source.get("data"), str):
        size = image_size.of_base64(data)
    return images.tokens(model, size, low=held.get("detail") == "low")


def _add_calls(message: dict[str, Any], texts: list[str]) -> None:
    """Add the names and arguments of the calls that a message made, in the current spelling and in the old one."""
    calls = message.get("tool_calls")
    for call in [*(calls if isinstance(calls, list) else []), {"function": message.get("function_call")}]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        for value in (function.get("name"), function.get("arguments")):
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, dict):
                texts.append(json.dumps(value, ensure_ascii=False))
