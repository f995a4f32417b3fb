"""How many tokens an image counts for, by its size and the family of the model: in tiles, or in patches.

Figures of the models' documentation and of LiteLLM 1.110, which differ for some; all of them are estimates.
"""

import functools
import math
import re
from typing import Final, NamedTuple

from tidegate.tokens import families

USUAL: Final = (1024, 1024)
"""Pixels of an image whose size is not known: nothing is fetched to learn it."""

_LONGEST, _SHORTEST, _TILE = 2048, 768, 512
"""Pixels, of the tiles: an image is made to fit the first, then its shorter side the second."""


class Tiles(NamedTuple):
    """So many tokens for an image, and so many more for each of its tiles of 512 x 512 pixels."""

    base: int
    tile: int

    def tokens(self, width: int, height: int, *, low: bool) -> int:
        """Return the tokens of an image of ``width`` x ``height`` pixels; ``low`` where few details are wanted."""
        if low:
            return self.base
        shrink = min(1.0, _LONGEST / max(width, height))
        shrink *= min(1.0, _SHORTEST / (min(width, height) * shrink))
        return self.base + self.tile * math.prod(
            max(1, math.ceil(side * shrink / _TILE - 1e-9)) for side in (width, height)
        )


class Patches(NamedTuple):
    """A token, times ``factor``, for each patch of ``side`` x ``side`` pixels, of which ``most`` at the most."""

    side: int
    most: int
    factor: float = 1.0

    def tokens(self, width: int, height: int, *, low: bool) -> int:
        """Return the tokens of an image of ``width`` x ``height`` pixels; ``low`` changes nothing."""
        del low
        patches = math.ceil(width / self.side) * math.ceil(height / self.side)
        return math.ceil(min(patches, self.most) * self.factor)


_OF_MODELS: Final[tuple[tuple[re.Pattern[str], Tiles | Patches], ...]] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        ("gpt-4o-mini", Tiles(2833, 5667)),
        (r"gpt-4\.1-mini", Patches(32, 1536, 1.62)),
        (r"gpt-4\.1-nano", Patches(32, 1536, 2.46)),
        ("o4-mini", Patches(32, 1536, 1.72)),
        ("gpt-5-nano", Patches(32, 1536, 1.5)),
        (r"gpt-5(\.1)?(?!\.?\d|-mini)", Tiles(70, 140)),
        ("gpt-5", Patches(32, 2500, 1.2)),
        (r"(?<![a-z0-9])o[13](?![a-z0-9])", Tiles(75, 150)),
        (r"qwen.*vl", Patches(28, 16_384)),
        ("llava", Patches(14, 576)),
    )
)
"""What is looked for in a model's name, first to last."""

_DEFAULT: Final = Tiles(85, 170)
"""GPT-4o's, and where nothing is known."""

_CLAUDE, _LATER_CLAUDE = Patches(28, 1568), Patches(28, 4784)


@functools.lru_cache(1_024)
def rule_for(model: str) -> Tiles | Patches:
    """Return how ``model``, any string, counts images."""
    name = model[:256].lower()
    if (version := families.claude_version(name)) is not None:
        return _LATER_CLAUDE if version >= families.LATER_CLAUDE else _CLAUDE
    return next((rule for pattern, rule in _OF_MODELS if pattern.search(name)), _DEFAULT)


def tokens(model: str, size: tuple[int, int] | None, *, low: bool = False) -> int:
    """Return about how many tokens an image counts for.

    Args:
        model: the model's name, any string.
        size: its width and height in pixels, 1 or more each; ``None`` when not known.
        low: whether the client asked for few details.
    """
    return rule_for(model).tokens(*(size or USUAL), low=low)
