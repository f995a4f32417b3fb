"""YAML without surprises: text, numbers, true and false, null, lists, and mappings with plain keys.

Unquoted words are read by YAML 1.2's core schema (https://yaml.org/spec/1.2.2/#103-core-schema), so that ``no``,
``1:30``, ``010`` and dates are text, which they are not in YAML 1.1. What a configuration does not need and an attacker
does is an error: aliases (the YAML bomb), tags, deep nesting; and so are a key given twice and a second document.
"""

import re
from typing import Any

import yaml

MAX_DEPTH = 20
"""Lists and mappings within one another."""

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# No more digits than fit 64 bits: a longer number, and one with leading zeros, stays text.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)


class NotYaml(Exception):  # noqa: N818  it says what the text is
    """The text cannot be read.

    Attributes:
        problem: what is wrong, in words.
        line: where, counted from 1; ``None`` when it is about the whole text.
        column: likewise.
    """

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.column = column


def read(text: bytes) -> Any:
    """Return the one document in ``text``, which is UTF-8, as JSON knows its values; ``None`` when it is empty.

    Raises:
        NotYaml: it is not YAML, or not as strict as this module wants it.
    """
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        raise NotYaml("expected UTF-8 text", line, column) from None
    try:
        node = _Composer(decoded).get_single_node()
    except yaml.MarkedYAMLError as error:
        problem = ": ".join(part for part in (error.context, error.problem) if part)
        raise _at(error.problem_mark or error.context_mark, problem) from None
    except yaml.reader.ReaderError as error:
        line = decoded.count("\n", 0, error.position) + 1
        raise NotYaml(f"the character U+{ord(decoded[error.position]):04X} is not allowed", line, 1) from None
    return None if node is None else _value(node)


class _Composer(yaml.BaseLoader):
    """Builds the tree of nodes, and stops at what is not taken."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _at(event.start_mark, "aliases are not supported")
        if event.tag is not None:
            raise _at(event.start_mark, "tags are not supported")
        if self._depth > MAX_DEPTH:
            raise _at(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _at(mark: Any, problem: str) -> NotYaml:
    return NotYaml(problem, mark.line + 1, mark.column + 1) if mark else NotYaml(problem)


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    text = _text(node)
    quoted = node.style is not None  # type: ignore[attr-defined]
    return text if quoted else _plain(text)


def _mapping(node: yaml.MappingNode) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _at(key.start_mark, "a key must be plain text")
        name = _text(key)
        if name in pairs:
            raise _at(key.start_mark, f"key {name!r} is given twice")
        pairs[name] = _value(value)
    return pairs


def _text(node: Any) -> str:
    text: str = node.value
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _at(node.start_mark, "half a surrogate pair is not a character")
    return text


def _plain(word: str) -> Any:
    """Return what an unquoted ``word`` stands for."""
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    if _NOT_FINITE.fullmatch(word):
        return float(word.replace(".", ""))
    return word
