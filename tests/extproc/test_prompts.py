from typing import Any

import pytest

from extproc.body import MAX_ITEMS
from extproc.errors import ApiError
from extproc.prompts import Prompts, of_field


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("hello", Prompts(("hello",), 0, 1, "hello")),
        ("", Prompts(("",), 0, 1, "")),
        (["a", "b"], Prompts(("a", "b"), 0, 2)),
        ([1, 2, 3], Prompts((), 3, 1, [1, 2, 3])),
        ([[1], [2, 3]], Prompts((), 3, 2)),
        (["a", [1, 2]], Prompts(("a",), 2, 2)),
        ([[]], Prompts((), 0, 1)),
    ],
)
def test_every_form_of_a_prompt_is_understood(value: Any, prompts: Prompts) -> None:
    assert of_field("prompt", value) == prompts


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (None, "prompt"),
        (7, "prompt"),
        ({"text": "a"}, "prompt"),
        ([], "prompt"),
        ([1, "a"], "prompt[0]"),
        (["a", None], "prompt[1]"),
        ([True, False], "prompt[0]"),
        ([[1, 2.5]], "prompt[0]"),
        ([[[1]]], "prompt[0]"),
    ],
)
def test_any_other_form_is_refused_by_its_place(value: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_field("prompt", value)

    assert (caught.value.status, caught.value.param) == (400, param)


def test_more_prompts_than_can_be_looked_at_are_refused_and_a_prompt_of_as_many_token_ids_is_not() -> None:
    assert of_field("prompt", ["a"] * MAX_ITEMS).number == MAX_ITEMS
    assert of_field("prompt", [1] * (MAX_ITEMS + 1)).known_tokens == MAX_ITEMS + 1
    for prompt in ("a", [1]):
        with pytest.raises(ApiError, match=f"at most {MAX_ITEMS} prompts") as caught:
            of_field("prompt", [prompt] * (MAX_ITEMS + 1))
        assert (caught.value.status, caught.value.param) == (400, "prompt")
