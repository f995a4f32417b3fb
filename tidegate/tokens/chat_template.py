"""A model's own chat template, as engines lay conversations out with it.

It is read from beside the ``tokenizer.json``: ``chat_template.jinja``, or ``chat_template`` in
``tokenizer_config.json``; and it is run as Hugging Face's transformers does, in a sandbox. Jinja2 is an optional
dependency.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidegate import regular_file

MAX_BYTES: Final = 4_194_304
"""The largest file that is read."""

Layout = Callable[[Sequence[Mapping[str, Any]], Sequence[Any], Mapping[str, Any]], str]
"""Lays out messages, with tools and the request's own options; raises anything."""


class ChatTemplateError(Exception):
    """There is no template that can be used; the message says why."""


def load(tokenizer: Path) -> Layout:
    """Return the template of the model whose ``tokenizer.json`` is ``tokenizer``.

    Raises:
        ChatTemplateError: see there.
    """
    try:
        from jinja2 import TemplateError  # noqa: PLC0415  optional
        from jinja2.ext import loopcontrols  # noqa: PLC0415
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415
    except ImportError as error:
        raise ChatTemplateError("the package jinja2 is missing; install tidegate[kv-events]") from error
    settings = _settings(tokenizer.with_name("tokenizer_config.json"))
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    try:
        template = environment.from_string(_text(tokenizer.with_name("chat_template.jinja"), settings))
    except TemplateError as error:
        raise ChatTemplateError(f"the chat template cannot be read: {error}") from error
    special = _special_tokens(settings)

    def layout(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], options: Mapping[str, Any]) -> str:
        given = {"tools": list(tools) or None, "documents": None, "add_generation_prompt": True}
        return template.render(**{**special, **given, **options, "messages": [_message(each) for each in messages]})

    return layout


def _settings(file: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads(_read(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ChatTemplateError(f"{file.name} cannot be read") from error
    return settings if isinstance(settings, dict) else {}


def _text(file: Path, settings: Mapping[str, Any]) -> str:
    try:
        return _read(file)
    except FileNotFoundError:
        template = settings.get("chat_template")
    except (OSError, ValueError) as error:
        raise ChatTemplateError(f"{file.name} cannot be read") from error
    if isinstance(template, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    if not isinstance(template, str):
        raise ChatTemplateError(f"there is no {file.name}, and no chat_template in tokenizer_config.json")
    return template


def _read(file: Path) -> str:
    data = regular_file.read(file, MAX_BYTES)
    if len(data) > MAX_BYTES:
        raise ValueError("too large")
    return data.decode()


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens that templates name, such as ``bos_token``."""
    written = {
        name: value.get("content") if isinstance(value, dict) else value
        for name, value in settings.items()
        if name.endswith("_token")
    }
    return {name: value for name, value in written.items() if isinstance(value, str)}


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``message`` as engines hand it to the template.

    Raises:
        ValueError: a part of it is no text.
    """
    laid = dict(message)
    content = message.get("content")
    if isinstance(content, list):
        laid["content"] = "\n".join(_part(part) for part in content)
    if calls := message.get("tool_calls"):
        laid["tool_calls"] = [_call(call) for call in calls]
    return laid


def _part(part: Any) -> str:
    text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise ValueError("not a text")  # noqa: TRY004  the type is the client's choice
    return text


def _call(call: Any) -> Any:
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        function["arguments"] = json.loads(function["arguments"] or "{}")
    return {**call, "function": function}


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _now(form: str) -> str:
    return dt.datetime.now().strftime(form)  # noqa: DTZ005  engines write their local time
