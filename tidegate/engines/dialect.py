"""How one engine names what every engine means: data, without code.

A dialect gives, for each field of ``fleet.load.EngineReport``, a list of alternatives. The first one that is present on
the page counts, so that an old release, a new one and a fork are read by the same dialect; with none present the
field is unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one name.

    Attributes:
        name: the whole name of the samples.
        where: labels that a sample must bear to count.
        label: where the number is the text of this label, as in ``…_info`` series, rather than the value.
    """

    name: str
    where: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum over the samples: for counts, which add up over ranks and model names."""

    series: Series


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over the samples: for shares, which do not add up. Each is expected between 0 and 1."""

    series: Series


@dataclass(frozen=True, slots=True)
class SumOfProducts:
    """Two factors multiplied per rank, then added up. A sample belongs with the one that bears the same labels."""

    left: Series
    right: Series


@dataclass(frozen=True, slots=True)
class Ratio:
    """The sum of a part over the sum of the whole: a share, expected between 0 and 1."""

    part: Series
    whole: Series


@dataclass(frozen=True, slots=True)
class Newest:
    """The number in a label of the newest sample: of a series whose value is the time of its last change.

    Its older samples, with other labels, stay on the page (vLLM: until the process ends).
    """

    series: Series


@dataclass(frozen=True, slots=True)
class Names:
    """The names in a label of the newest sample, separated by commas."""

    series: Series


Meaning = Sum | Mean | SumOfProducts | Ratio | Newest | Names


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine. The fields from ``running`` on are those of ``EngineReport``, with the same units.

    Attributes:
        metrics_path: where the page is; ``None`` when there is none, and a connection is all that can be tried.
        running: alternatives, the preferred one first; likewise below.
        waiting: see above.
        kv_usage: see above.
        kv_capacity_tokens: see above.
        prompt_tokens_total: see above.
        generation_tokens_total: see above.
        started_at: see above.
        max_adapters: see above.
        running_adapters: see above.
        waiting_adapters: see above.
    """

    metrics_path: str | None
    running: tuple[Meaning, ...] = ()
    waiting: tuple[Meaning, ...] = ()
    kv_usage: tuple[Meaning, ...] = ()
    kv_capacity_tokens: tuple[Meaning, ...] = ()
    prompt_tokens_total: tuple[Meaning, ...] = ()
    generation_tokens_total: tuple[Meaning, ...] = ()
    started_at: tuple[Meaning, ...] = ()
    max_adapters: tuple[Meaning, ...] = ()
    running_adapters: tuple[Meaning, ...] = ()
    waiting_adapters: tuple[Meaning, ...] = ()

    def meanings(self) -> Iterator[tuple[str, tuple[Meaning, ...]]]:
        """Iterate over the fields of the report and their alternatives."""
        return ((entry.name, getattr(self, entry.name)) for entry in fields(self) if entry.name != "metrics_path")

    @property
    def wanted(self) -> frozenset[str]:
        """The names of all samples that the dialect reads."""
        return frozenset(
            series.name for _, alternatives in self.meanings() for meaning in alternatives for series in parts(meaning)
        )


def parts(meaning: Meaning) -> tuple[Series, ...]:
    """Return the series that ``meaning`` is made of."""
    match meaning:
        case Sum(series) | Mean(series) | Newest(series) | Names(series):
            return (series,)
        case SumOfProducts(left, right):
            return left, right
        case Ratio(part, whole):
            return part, whole
