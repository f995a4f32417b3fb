"""Conversations are laid out as the model's own template says."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidegate.tokens import chat_template
from tidegate.tokens.chat_template import ChatTemplateError, load

CHATML = (
    "{%- if tools %}{{ '<tools>' + (tools | tojson) + '</tools>' }}{%- endif %}"
    "{%- for message in messages %}"
    "{{ bos_token if loop.first }}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>' if thinking }}{%- endif %}"
)


def beside(folder: Path, **files: Any) -> Path:
    """Write files beside a tokenizer.json that is not there; return where it would be."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("_DOT_", ".")).write_text(text)
    return folder / "tokenizer.json"


def test_messages_are_laid_out_with_what_the_template_names(tmp_path: Path) -> None:
    layout = load(beside(tmp_path, tokenizer_config_DOT_json={"chat_template": CHATML, "bos_token": "<s>"}))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert layout(messages, (), {"thinking": True}) == (
        "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>"
    )


def test_a_file_of_its_own_goes_before_and_tokens_may_be_objects(tmp_path: Path) -> None:
    settings = {"chat_template": "no", "bos_token": {"content": "<s>", "lstrip": False}, "add_bos_token": True}
    layout = load(
        beside(tmp_path, tokenizer_config_DOT_json=settings, chat_template_DOT_jinja="{{ bos_token }}{{ messages }}")
    )
    assert layout([], (), {}) == "<s>[]"


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    several = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    assert load(beside(tmp_path, tokenizer_config_DOT_json={"chat_template": several}))([], (), {}) == "d"


def test_texts_in_parts_are_joined_and_the_arguments_of_calls_are_read(tmp_path: Path) -> None:
    calls = "{% for c in m.tool_calls %}{{ c.function.arguments.x }}{% endfor %}"
    template = "{% for m in messages %}{{ m.content }}" + calls + "{% endfor %}"
    layout = load(beside(tmp_path, chat_template_DOT_jinja=template))
    parts = [{"type": "text", "text": "a"}, "b"]
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x": "c"}'}}
    assert layout([{"role": "user", "content": parts, "tool_calls": [call]}], (), {}) == "a\nbc"


def test_tools_and_what_the_client_says_reach_the_template_and_its_messages_stay(tmp_path: Path) -> None:
    layout = load(beside(tmp_path, chat_template_DOT_jinja="{{ tools | tojson }}{{ messages | length }}"))
    assert layout([{"role": "user"}], [{"é": 1}], {"messages": [], "x": 1}) == '[{"é": 1}]1'


def test_the_date_is_that_of_today(tmp_path: Path) -> None:
    assert len(load(beside(tmp_path, chat_template_DOT_jinja="{{ strftime_now('%Y') }}"))([], (), {})) == 4


@pytest.mark.parametrize("content", [[{"type": "image_url"}], [1]])
def test_what_is_no_text_is_not_laid_out(tmp_path: Path, content: Any) -> None:
    layout = load(beside(tmp_path, chat_template_DOT_jinja=CHATML))
    with pytest.raises(ValueError, match="not a text"):
        layout([{"role": "user", "content": content}], (), {})


def test_a_template_may_refuse_and_cannot_leave_its_sandbox(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such role"):
        load(beside(tmp_path, chat_template_DOT_jinja="{{ raise_exception('no such role') }}"))([], (), {})
    layout = load(beside(tmp_path, chat_template_DOT_jinja="{{ messages.append(1) }}"))
    with pytest.raises(Exception, match=r"unsafe|access|safely"):
        layout([], (), {})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "there is no chat_template.jinja"),
        ({"tokenizer_config_DOT_json": "["}, "cannot be read"),
        ({"tokenizer_config_DOT_json": []}, "there is no"),
        ({"tokenizer_config_DOT_json": {"chat_template": [1]}}, "there is no"),
        ({"chat_template_DOT_jinja": "{% if %}"}, "the chat template cannot be read"),
    ],
)
def test_why_there_is_no_template_is_said(tmp_path: Path, files: dict[str, Any], reason: str) -> None:
    with pytest.raises(ChatTemplateError, match=reason):
        load(beside(tmp_path, **files))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_BYTES", 3)
    with pytest.raises(ChatTemplateError, match="cannot be read"):
        load(beside(tmp_path, chat_template_DOT_jinja="four"))
