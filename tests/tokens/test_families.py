"""Every model has a vocabulary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING

from tidegate.tokens import vocabulary
from tidegate.tokens.families import DEFAULT, claude_version, encoding_for, prior

OF_TODAY = {"o200k_base": "o200k_base", "o200k_harmony": "o200k_base", "cl100k_base": "cl100k_base"}


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        (model, OF_TODAY[encoding])
        for model, encoding in [*MODEL_TO_ENCODING.items(), *MODEL_PREFIX_TO_ENCODING.items()]
        if encoding in OF_TODAY
    ],
)
def test_models_are_counted_as_tiktoken_counts_them(model: str, encoding: str) -> None:
    assert encoding_for(model) == encoding
    assert encoding_for(f"{model.rstrip('-')}-2026-01-01") == encoding
    assert encoding_for(f"openai/{model}") == encoding


@pytest.mark.parametrize(
    "model",
    ["gpt-4", "GPT-4-Turbo", "openai/gpt-4", "azure/gpt-35-turbo-16k", "ft:gpt-4:org::7p4lURx", "openai/ft:gpt-4"],
)
def test_prefixes_and_suffixes_do_not_hide_the_family(model: str) -> None:
    assert encoding_for(model) == "cl100k_base"


@pytest.mark.parametrize(
    "model",
    ["", "gpt-4o", "gpt-4.1-mini", "gpt-4all", "gpt-6", "ft:gpt-4o:org::1", "meta-llama/Llama-3.1-8B", "qwen3", "*"],
)
def test_what_is_not_known_is_counted_by_the_default(model: str) -> None:
    assert encoding_for(model) == DEFAULT


@given(st.text(st.characters(exclude_categories=())))
def test_every_name_has_a_vocabulary_that_is_loaded(model: str) -> None:
    assert encoding_for(model) in vocabulary.HASHES


@pytest.mark.parametrize(
    ("model", "version", "factor"),
    [
        ("claude-3-5-sonnet-20241022", (3, 5), 1.2),
        ("claude-3-opus-20240229", (3, 0), 1.2),
        ("claude-instant-1.2", (1, 2), 1.2),
        ("claude-sonnet-4-20250514", (4, 0), 1.2),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", (4, 5), 1.2),
        ("anthropic/claude-opus-4.7", (4, 7), 1.5),
        ("Claude-Sonnet-5", (5, 0), 1.5),
        ("claude-opus-10-2", (10, 2), 1.5),
        ("claude-next", (4, 7), 1.5),
        ("gpt-4o", None, 1.0),
        ("", None, 1.0),
    ],
)
def test_claude_is_counted_with_a_prior_by_its_version(
    model: str, version: tuple[int, int] | None, factor: float
) -> None:
    assert claude_version(model) == version
    assert prior(model) == factor
