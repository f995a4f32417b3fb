"""Texts that are judged in pairs: each of one side is read by the model together with its other."""

from typing import Any

from extproc.body import MAX_ITEMS
from extproc.conversation import Contribution, add_content
from extproc.errors import missing, wrong_type, wrong_value

BYTES_PER_TOKEN = 4
"""For the repetitions of a text alone; the text itself is tokenised once."""


def of_fields(one: str, first: Any, other: str, second: Any) -> Contribution:
    """Return what the fields named ``one`` and ``other`` put into the prompts.

    A single text against several is read again with each of them.

    Raises:
        ApiError: one is missing, too many, or of another form.
    """
    texts: list[str] = []
    tokens = 0
    numbers, sizes = [], []
    for param, value in ((one, first), (other, second)):
        if value is None:
            raise missing(param)
        sides = value if isinstance(value, list) else [value]
        if len(sides) > MAX_ITEMS:
            raise wrong_value(param, f"at most {MAX_ITEMS} texts")
        before = len(texts)
        tokens += sum(
            _add(side, param if sides is not value else f"{param}[{n}]", texts) for n, side in enumerate(sides)
        )
        numbers.append(len(sides))
        sizes.append(sum(map(len, texts[before:])))
    again = max(numbers) - 1
    tokens += sum(again * size // BYTES_PER_TOKEN for number, size in zip(numbers, sizes, strict=True) if number == 1)
    return Contribution(texts, tokens)


def _add(side: Any, param: str, texts: list[str]) -> int:
    if isinstance(side, str):
        texts.append(side)
        return 0
    if not isinstance(side, dict):
        raise wrong_type(param, "a string, an object, or an array of them")
    if isinstance(text := side.get("text"), str):
        texts.append(text)
    return add_content(side.get("content"), f"{param}.content", texts)
