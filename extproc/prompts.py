"""Prompts that are given as they are: a text, token ids, or a batch of either."""

from typing import Any, NamedTuple, TypeGuard

from extproc.body import MAX_ITEMS
from extproc.errors import missing, wrong_type, wrong_value

EXPECTED = "a string, an array of strings, an array of token ids, or an array of arrays of token ids"


class Prompts(NamedTuple):
    """A batch of prompts.

    Attributes:
        texts: those given as text.
        known_tokens: how many token ids the others have.
        number: how many prompts there are.
        given: the only one, as it came; ``None`` for a batch.
    """

    texts: tuple[str, ...]
    known_tokens: int
    number: int
    given: str | list[int] | None = None


def of_field(param: str, value: Any) -> Prompts:
    """Return the prompts in the field ``param``.

    Raises:
        ApiError: it is missing, empty, too many, or of another form.
    """
    if value is None:
        raise missing(param)
    if isinstance(value, str):
        return Prompts((value,), 0, 1, value)
    if not isinstance(value, list):
        raise wrong_type(param, EXPECTED)
    if not value:
        raise wrong_value(param, "at least one prompt")
    if are_ids(value):
        return Prompts((), len(value), 1, value)
    if len(value) > MAX_ITEMS:
        raise wrong_value(param, f"at most {MAX_ITEMS} prompts")
    texts: list[str] = []
    tokens = 0
    for place, prompt in enumerate(value):
        if isinstance(prompt, str):
            texts.append(prompt)
        elif are_ids(prompt):
            tokens += len(prompt)
        else:
            raise wrong_type(f"{param}[{place}]", "a string or an array of token ids")
    return Prompts(tuple(texts), tokens, len(value))


def are_ids(value: Any) -> TypeGuard[list[int]]:
    """Return whether ``value`` is an array of token ids."""
    # A set of types rather than isinstance in a loop: a prompt may have a million ids, and true is not one.
    return isinstance(value, list) and set(map(type, value)) <= {int}
