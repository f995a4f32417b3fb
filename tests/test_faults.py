"""Faults in words, for kinds of values that the configuration has no key for yet."""

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from tidegate import faults


class Section(BaseModel):
    model_config = ConfigDict(strict=True)

    switch: bool = False
    size: float = 1.0


def said(text: str) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Section.model_validate_json(text)
    return faults.lines(caught.value, Section)


def test_a_fault_without_words_of_its_own_says_what_was_expected_all_the_same() -> None:
    assert said('{"switch": 1}') == ["switch: input should be a valid boolean, not 1"]


def test_a_fault_of_the_whole_has_no_key() -> None:
    assert said("5") == ["expected a mapping with the keys switch, size, not 5"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("a", "'a'"),
        (1.5, "1.5"),
        ([], "an empty list"),
        ([1], "a list"),
        ({}, "a mapping"),
    ],
)
def test_values_are_shown_as_a_file_has_them(value: object, text: str) -> None:
    assert faults.shown(value) == text


def test_a_long_value_is_cut_where_it_is_shown() -> None:
    assert len(faults.shown("x" * 1000)) == faults.MAX_SHOWN + 3
