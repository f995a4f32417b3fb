"""What a chat template adds, against counts made with the models' own tokenizers and templates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.tokens.prompt import Conversation
from tidegate.tokens.templates import DEFAULT, TEMPLATES, added_tokens, template_for

USER = Conversation(1)
INSTRUCTED = Conversation(2, instructions=1)
PAIRS = Conversation(7)
"""A user's message, and three pairs of an answer and another question."""
TOOLS = Conversation(1, schema_characters=623)
"""Two small tools of 178 tokens."""

MEASURED = {
    "openai": (7, 11, 24),
    "gpt-oss": (56, 63, 30),
    "llama-3": (10, 15, 30),
    "llama-3.1": (35, 35, 30),
    "qwen2.5": (29, 13, 30),
    "qwen3": (8, 13, 30),
    "gemma-3": (9, 10, 30),
    "deepseek-v3": (3, 3, 9),
    "mistral-v1": (8, 10, 24),
    "mistral-v3": (3, 5, 9),
}
"""Tokens of a user's message alone, of an instruction and a user's message, and of three further pairs."""

TOOLS_MEASURED = {"openai": 98, "gpt-oss": 121, "llama-3.1": 364, "qwen2.5": 254, "qwen3": 259, "mistral-v3": 182}
"""Tokens that the two tools add, their schemas included."""


def test_every_family_is_measured() -> None:
    assert MEASURED.keys() == TEMPLATES.keys()


@pytest.mark.parametrize("family", MEASURED)
def test_a_template_adds_what_was_measured(family: str) -> None:
    template, (user, instructed, pairs) = TEMPLATES[family], MEASURED[family]
    assert added_tokens(template, USER) == user
    assert added_tokens(template, INSTRUCTED) == instructed
    assert added_tokens(template, PAIRS) - user == pairs


@pytest.mark.parametrize("family", TOOLS_MEASURED)
def test_tools_and_their_schemas_cost_what_was_measured(family: str) -> None:
    template = TEMPLATES[family]
    added = added_tokens(template, TOOLS) - added_tokens(template, USER)
    assert 178 + added == pytest.approx(TOOLS_MEASURED[family], abs=7)


def test_a_name_costs_a_token_with_openai_alone() -> None:
    named = USER._replace(names=1)
    assert [
        family for family, known in TEMPLATES.items() if added_tokens(known, named) != added_tokens(known, USER)
    ] == [DEFAULT]


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4o", "openai"),
        ("", "openai"),
        ("my-finetune", "openai"),
        ("claude-sonnet-4", "openai"),
        ("openai/gpt-oss-120b", "gpt-oss"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3"),
        ("llama3:8b", "llama-3"),
        ("llama-3-70b", "llama-3"),
        ("llama-3-128k", "llama-3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1"),
        ("sim-llama-3.1-8b", "llama-3.1"),
        ("Llama-3.3-70B", "llama-3.1"),
        ("llama3.2:1b", "llama-3.1"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
        ("Qwen/Qwen3-235B-A22B", "qwen3"),
        ("google/gemma-3-27b-it", "gemma-3"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-3.1-8B", "deepseek-v3"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-v1"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistral-v1"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-v3"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-v3"),
        ("mistralai/Codestral-22B-v0.1", "mistral-v3"),
        ("mistralai/Ministral-8B", "mistral-v3"),
    ],
)
def test_a_models_name_gives_its_family(model: str, family: str) -> None:
    assert template_for(model) is TEMPLATES[family]


@given(st.text(st.characters(exclude_categories=())))
def test_every_name_has_a_template(model: str) -> None:
    assert template_for(model) in TEMPLATES.values()


def test_long_schemas_that_a_template_shortens_take_tokens_away() -> None:
    assert added_tokens(TEMPLATES["openai"], USER._replace(schema_characters=7_000)) == 7 + 9 - 1_000
