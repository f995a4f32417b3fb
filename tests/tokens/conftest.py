"""The real tokenizers, loaded once: that takes a second."""

import pytest

from tidegate.tokens import vocabulary
from tidegate.tokens.bounded import Tokenizer


@pytest.fixture(scope="session")
def o200k() -> Tokenizer:
    return Tokenizer("o200k_base", vocabulary.tokenizer("o200k_base"))


@pytest.fixture(scope="session")
def cl100k() -> Tokenizer:
    return Tokenizer("cl100k_base", vocabulary.tokenizer("cl100k_base"))
