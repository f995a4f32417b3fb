"""Structured logs: one line per event on standard error, as logfmt or JSON.

Whatever a value holds, it stays on its line and cannot drive a terminal: control characters, quotes and everything else
that does not print is escaped. Prompts are never given to a logger.

Parts that do not know this module say ``logger.info("what happened", extra={"fields": {...}})``, which is the same.
"""

import json
import logging
import math
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

MAX_VALUE = 8192
"""Characters of one value that are kept, enough for a traceback."""

_FIELDS = "fields"
_BARE = re.compile(r"[A-Za-z0-9_.,:;/@+*\[\]()<>{}|~!#$%^&-]+")
_ODD_KEY = re.compile(r"[^A-Za-z0-9_.-]")

Level = Literal["debug", "info", "warning", "error"]
Value = str | float | bool | None


def setup(format: Literal["text", "json"] = "text", level: Level = "info") -> None:  # noqa: A002
    """Send all logs of this process to standard error as ``format``, from ``level`` up; nowhere else any more."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(JsonFormatter() if format == "json" else LogfmtFormatter())
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(level.upper())


def event(
    logger: logging.Logger,
    message: str,
    /,
    *,
    level: int = logging.INFO,
    error: BaseException | None = None,
    **fields: Value,
) -> None:
    """Log ``message``, a constant text, with what varies as ``fields``; ``error`` adds its type, text and traceback."""
    logger.log(level, "%s", message, exc_info=error, extra={_FIELDS: fields}, stacklevel=2)


class JsonFormatter(logging.Formatter):
    """One JSON object per event, ASCII alone."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return json.dumps(_line(record), ensure_ascii=True)


class LogfmtFormatter(logging.Formatter):
    """``key=value`` pairs; a value that is not one plain word is quoted and escaped as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return " ".join(f"{key}={_logfmt(value)}" for key, value in _line(record).items())


def _line(record: logging.LogRecord) -> dict[str, Value]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line: dict[str, Value] = {
        "ts": moment,
        "level": record.levelname.lower(),
        "logger": record.name,
        "msg": _cut(record.getMessage()),
    }
    fields = getattr(record, _FIELDS, None)
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            name = _ODD_KEY.sub("_", str(key))
            line[f"{name}_" if name in line else name] = value if _plain(value) else _cut(str(value))
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        line["error"] = _cut(f"{type(error).__name__}: {error}")
        line["traceback"] = _cut("".join(traceback.format_exception(error)))
    return line


def _plain(value: object) -> bool:
    """Tell whether JSON has a word for ``value``; it has none for NaN and the infinities."""
    return math.isfinite(value) if isinstance(value, int | float) else value is None


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"


def _logfmt(value: Value) -> str:
    if value is None:
        return "-"
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _BARE.fullmatch(value) and value != "-" else f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    if character in {'"', "\\"}:
        return f"\\{character}"
    return character if character.isprintable() else json.dumps(character)[1:-1]
