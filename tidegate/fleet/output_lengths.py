"""How long answers are, learned from those that ended.

Answers are anything but evenly long, and a limit cuts the long ones alone: so their distribution is kept, in cells that
grow by a third, and the older an answer is, the less it counts.
"""

import itertools
import math
from collections import OrderedDict

PRIOR_OUTPUT_TOKENS = 250.0
"""Tokens of a typical answer until some were seen (Azure's 2023 conversation trace: 211)."""

PRIOR_ANSWERS = 4.0
"""How many answers the prior weighs as much as."""

MEMORY = 200.0
"""How many answers are remembered, about."""

GROWTH = 4 / 3
CELLS = 48
"""Cells up to 750,000 tokens; longer answers count as these."""

MOST_KINDS = 64
"""How many kinds of requests (model and API) of a pool are told apart; those unused for longest are forgotten."""

FEW_ANSWERS = 20.0
"""As many answers of a kind weigh as much as all that the pool has seen of other kinds."""

_LOG_GROWTH = math.log(GROWTH)
_MIDDLES = tuple(GROWTH**cell for cell in range(CELLS))
_RESCALE = 1e12


LengthsImage = tuple[tuple[float, ...], tuple[float, ...]]
"""A distribution as plain data; see ``OutputLengths.image``."""


class OutputLengths:
    """The distribution of the lengths of answers."""

    __slots__ = ("_cells", "_next", "_sum", "_tokens", "_total")

    def __init__(self, prior: float = PRIOR_OUTPUT_TOKENS) -> None:
        """Start with ``prior`` tokens, which a few answers outweigh."""
        self._cells = [0.0] * CELLS
        self._tokens = [0.0] * CELLS
        self._total = self._sum = 0.0
        self._next = PRIOR_ANSWERS
        self._add(prior)
        self._next = 1.0

    def image(self) -> LengthsImage:
        """Return all of it as plain data: for each cell how many answers and how many tokens, as one answer weighs."""
        each = self._next
        return tuple(weight / each for weight in self._cells), tuple(tokens / each for tokens in self._tokens)

    def restore(self, image: LengthsImage) -> None:
        """Become what ``image`` shows."""
        self._cells, self._tokens = list(image[0]), list(image[1])
        self._total, self._sum, self._next = sum(self._cells), sum(self._tokens), 1.0

    @property
    def answers(self) -> float:
        """How many answers stand behind this, the remembered ones alone, the prior left out."""
        return max(0.0, self._total / self._next - PRIOR_ANSWERS)

    def observe(self, tokens: float) -> None:
        """Take in an answer of ``tokens`` tokens, 1 or more."""
        # Each answer weighs a little more than all before it, instead of all of those a little less.
        self._next *= 1 + 1 / MEMORY
        self._add(tokens)
        if self._next > _RESCALE:
            self._cells = [weight / self._next for weight in self._cells]
            self._tokens = [weight / self._next for weight in self._tokens]
            self._total, self._sum = sum(self._cells), sum(self._tokens)
            self._next = 1.0

    def _add(self, tokens: float) -> None:
        cell = min(CELLS - 1, max(0, round(math.log(max(1.0, tokens)) / _LOG_GROWTH)))
        self._cells[cell] += self._next
        counted = self._next * min(tokens, 2 * _MIDDLES[-1])
        self._tokens[cell] += counted
        self._sum += counted
        self._total += self._next

    def mean(self, limit: float | None = None) -> float:
        """Return the expected length of an answer in tokens that ends at ``limit`` tokens at the latest."""
        if limit is None:
            return self._sum / self._total
        cut = 0.0
        for weight, tokens in zip(self._cells, self._tokens, strict=True):
            if weight:
                cut += min(tokens, limit * weight)
        return min(limit, cut / self._total)

    def quantile(self, share: float, limit: float | None = None) -> float:
        """Return the length in tokens that the given share of the answers does not exceed, ``limit`` at most."""
        below = itertools.accumulate(self._cells)
        cell = next((cell for cell, weight in enumerate(below) if weight >= share * self._total), CELLS - 1)
        length = _MIDDLES[cell] * math.sqrt(GROWTH)
        return length if limit is None else min(length, limit)


class PoolOutputLengths:
    """The lengths of a pool's answers, by kind of request as soon as enough of that kind ended."""

    __slots__ = ("_all", "_by_kind")

    def __init__(self) -> None:
        """Start with the prior alone."""
        self._all = OutputLengths()
        self._by_kind: OrderedDict[str, OutputLengths] = OrderedDict()

    def image(self) -> tuple[tuple[str | None, LengthsImage], ...]:
        """Return all of it as plain data: of all kinds together (``None``), then of each."""
        return ((None, self._all.image()), *((kind, one.image()) for kind, one in self._by_kind.items()))

    def restore(self, image: tuple[tuple[str | None, LengthsImage], ...]) -> None:
        """Know what ``image`` says, and nothing else."""
        self._by_kind.clear()
        for kind, one in image:
            lengths = self._all if kind is None else self._by_kind.setdefault(kind, OutputLengths())
            lengths.restore(one)

    def observe(self, kind: str, tokens: float) -> None:
        """Take in an answer of ``tokens`` tokens to a request of ``kind``."""
        self._all.observe(tokens)
        lengths = self._by_kind.get(kind)
        if lengths is None:
            lengths = self._by_kind[kind] = OutputLengths(self._all.mean())
            if len(self._by_kind) > MOST_KINDS:
                self._by_kind.popitem(last=False)
        self._by_kind.move_to_end(kind)
        lengths.observe(tokens)

    def mean(self, kind: str, limit: float | None = None) -> float:
        """Return the expected length of an answer to a request of ``kind`` in tokens, ``limit`` tokens at most."""
        pooled, lengths = self._all.mean(limit), self._by_kind.get(kind)
        if lengths is None or len(self._by_kind) == 1:
            return pooled
        own = lengths.answers / (lengths.answers + FEW_ANSWERS)
        mixed = own * lengths.mean(limit) + (1 - own) * pooled
        return mixed if limit is None else min(mixed, limit)

    def quantile(self, kind: str, share: float, limit: float | None = None) -> float:
        """Return the length in tokens that ``share`` of the answers to ``kind`` do not exceed, ``limit`` at most."""
        lengths = self._by_kind.get(kind)
        known = lengths if lengths is not None and lengths.answers >= FEW_ANSWERS else self._all
        return known.quantile(share, limit)
