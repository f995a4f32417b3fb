"""What an engine's error says of the engine."""

import pytest

from tidegate.fleet.error_texts import MAX_CHARACTERS, TEXTS, Said, said


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ('{"error":{"message":"EngineCore encountered an issue. See stack trace (above)."}}', Said.ENGINE_DEAD),
        ("RuntimeError: cannot schedule new futures after shutdown", Said.ENGINE_DEAD),
        ("CUDA out of memory. Tried to allocate 20.00 MiB", Said.OUT_OF_MEMORY),
        ("EngineCore encountered an issue: CUDA out of memory", Said.ENGINE_DEAD),
        ("The engine is currently busy and cannot accept new requests.", Said.BUSY),
        ('{"error":"Model is overloaded","error_type":"overloaded"}', Said.BUSY),
        ("Internal Server Error", Said.OTHER),
        ("", Said.OTHER),
    ],
)
def test_an_error_is_known_by_its_words(text: str, meaning: Said) -> None:
    assert said(text) is meaning


def test_only_the_beginning_of_an_error_is_looked_through() -> None:
    assert said("x" * MAX_CHARACTERS + "out of memory") is Said.OTHER


def test_the_texts_are_in_the_form_in_which_they_are_compared() -> None:
    known = [text for texts in TEXTS.values() for text in texts]
    assert known == [text.lower() for text in known]
    assert len(set(known)) == len(known)
