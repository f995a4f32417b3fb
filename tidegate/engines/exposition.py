r"""The Prometheus text format, read from pages that nobody vouches for.

An engine's page is mostly histograms that no decision uses, and it is read once a second per endpoint: lines are
matched against the wanted names before anything else is done with them. The grammar is that of the text format,
whatever version the page says it has (https://prometheus.io/docs/instrumenting/exposition_formats/), with OpenMetrics'
exemplars and timestamps passed over.

Nothing here raises on bad input. What a page gets wrong is remembered per name instead, because a sum over the lines
that happened to be readable is not the sum.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_LINES = 100_000
"""Lines of one page; vLLM's has 591, that of Dynamo's frontend 1046."""

MAX_SAMPLES = 1_000
"""Wanted lines of one page: a dozen names, each with one series per data-parallel rank and model name."""

MAX_LINE = 65_536
"""Characters of one wanted line; ``vllm:cache_config_info`` has about 1100."""

MAX_LABEL = 4_096
"""Characters of one label value."""


class Sample(NamedTuple):
    """One line: the value of a series.

    Attributes:
        name: the whole name, suffixes such as ``_total`` included.
        labels: label values by label name, unescaped.
        value: may be NaN or infinite.
    """

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """What the wanted lines of one page say.

    Attributes:
        samples: in the order of the page, each series once.
        broken: wanted names with a line that could not be read, or with two different values for one series. Their
            samples are incomplete.
        skipped: how many wanted lines could not be read.
        truncated: the page has more lines or more wanted lines than allowed; the rest was not read.
        foreign: the first line with anything in it is neither a comment nor a sample: HTML, JSON or noise.
    """

    samples: tuple[Sample, ...] = ()
    broken: frozenset[str] = frozenset()
    skipped: int = 0
    truncated: bool = False
    foreign: bool = False

    def named(self, name: str) -> tuple[Sample, ...]:
        """Return the samples of one name."""
        return tuple(sample for sample in self.samples if sample.name == name)


@dataclass(slots=True)
class _Reading:
    """A page while it is being read."""

    seen: int = 0
    samples: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    skipped: int = 0


def parse(
    text: str | bytes,
    wanted: frozenset[str],
    *,
    max_lines: int = MAX_LINES,
    max_samples: int = MAX_SAMPLES,
    max_line: int = MAX_LINE,
    max_label: int = MAX_LABEL,
) -> Page:
    """Read the samples whose names are ``wanted``.

    Bytes that are not UTF-8 become replacement characters. Nothing raises; the bounds are those of the constants above.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    # Not splitlines: in this format only a line feed ends a line, and a label value may hold the other separators.
    lines = text.split("\n", max_lines)
    truncated = len(lines) > max_lines and bool(lines.pop())
    prefixes = tuple(wanted)
    reading = _Reading()
    for line in lines:
        line = line.strip(" \t\r")  # noqa: PLW2901  the format allows blanks around a line
        if not line.startswith(prefixes):
            continue
        name = _name(line)
        if name not in wanted:
            continue
        if reading.seen >= max_samples:
            truncated = True
            break
        _record(reading, name, _sample(name, line, max_label) if len(line) <= max_line else None)
    return Page(
        samples=tuple(reading.samples.values()),
        broken=frozenset(reading.broken),
        skipped=reading.skipped,
        truncated=truncated,
        foreign=_is_foreign(lines),
    )


def _record(reading: _Reading, name: str, sample: Sample | None) -> None:
    reading.seen += 1
    if sample is None:
        reading.skipped += 1
        reading.broken.add(name)
        return
    key = name, frozenset(sample.labels.items())
    known = reading.samples.setdefault(key, sample)
    if known is not sample and known.value != sample.value:
        reading.broken.add(name)


_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Label names may be quoted, since version 1.0.0 of the format allows any character in them.
_LABEL = re.compile(rf"[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+|{_QUOTED})[ \t]*+=[ \t]*+({_QUOTED})[ \t]*+(,|(?=\}}))")
_LABELS_BEGIN = re.compile(r"[ \t]*+\{")
_LABELS_END = re.compile(r"[ \t]*+\}")
_NUMBER = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_VALUE_TEXT = rf"(?:{_NUMBER}|(?i:[+-]?inf(?:inity)?|nan))"
# A timestamp and an exemplar may follow the value.
_VALUE = re.compile(rf"[ \t]*+({_VALUE_TEXT})(?:[ \t]++{_NUMBER})?[ \t]*+(?:(?<=[ \t])#.*+)?", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def _name(line: str) -> str:
    match = _NAME.match(line)
    return match[0] if match else ""


def _sample(name: str, line: str, max_label: int) -> Sample | None:
    """Return the sample on ``line``, which begins with ``name``; ``None`` when it is malformed."""
    at = len(name)
    labels: dict[str, str] = {}
    if opening := _LABELS_BEGIN.match(line, at):
        at = opening.end()
        while label := _LABEL.match(line, at):
            at = label.end()
            key, value = _unquoted(label[1]), _unquoted(label[2])
            if key in labels or len(key) > max_label or len(value) > max_label:
                return None
            labels[key] = value
        end = _LABELS_END.match(line, at)
        if end is None:
            return None
        at = end.end()
    elif line[at : at + 1] not in (" ", "\t"):
        return None
    value_match = _VALUE.fullmatch(line, at)
    return None if value_match is None else Sample(name, labels, float(value_match[1]))


def _unquoted(text: str) -> str:
    r"""Return ``text`` without its quotes and escapes; escapes that the format does not know stand for themselves."""
    if not text.startswith('"'):
        return text
    text = text[1:-1]
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}

_ANY_SAMPLE = re.compile(
    rf"{_NAME.pattern}(?:[ \t]*+\{{|[ \t]++{_VALUE_TEXT})"  # name{ or name value
    rf"|\{{[ \t]*+{_QUOTED}[ \t]*+[,}}]"  # {"a name of any characters", or {"such a name"}}
)


def _is_foreign(lines: list[str]) -> bool:
    first = next((line for line in lines if line.strip()), "#").strip()
    return not first.startswith("#") and _ANY_SAMPLE.match(first) is None
