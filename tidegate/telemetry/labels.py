"""Label values under control: few enough for Prometheus, and harmless whatever a client wrote.

Each dimension has one of two guards. Where the values are known from the configuration, ``Configured`` lets those pass.
Where they come from outside, ``Folded`` lets the first so many pass. Everything else is filed under ``other``.
"""

from collections.abc import Iterable

OTHER = "other"
"""The label value of everything that was not admitted."""

MAX_LENGTH = 128
"""Characters of a label value that are kept."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(value: str) -> str:
    """Return ``value`` cut to ``MAX_LENGTH``, with a replacement for each character that does not print.

    A lone surrogate is among those: it cannot be encoded, and would cost the whole page.
    """
    value = value[:MAX_LENGTH]
    return value if value.isprintable() else "".join(c if c.isprintable() else _REPLACEMENT for c in value)


class Configured:
    """Admits the values that the configuration names."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()

    def replace(self, values: Iterable[str]) -> frozenset[str]:
        """Admit ``values`` alone from now on; return those that no longer are."""
        before, self._values = self._values, frozenset(values)
        return before - self._values

    def __call__(self, value: str) -> str:
        """Return the label for ``value``."""
        return value if value in self._values else OTHER


class Folded:
    """Admits the first ``limit`` distinct values, besides those it was told of."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._expected: frozenset[str] = frozenset()
        self._seen: set[str] = set()

    def expect(self, values: Iterable[str]) -> None:
        """Always admit ``values``, from the configuration; they do not count against the limit."""
        self._expected = frozenset(map(clean, values))

    def __call__(self, value: str, *, admit: bool = True) -> str:
        """Return the label for ``value``; ``admit=False`` gives ``other`` for what has no place yet."""
        value = clean(value)
        if value in self._seen or value in self._expected:
            return value
        if not value or not admit or len(self._seen) >= self._limit:
            return OTHER
        self._seen.add(value)
        return value
