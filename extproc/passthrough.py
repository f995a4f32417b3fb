"""Requests on paths that are not known, where the configuration names a pool for them: passed on unread."""

from extproc.body import ParsedBody
from extproc.usage import Usage

NAME = "unknown_path"
"""What stands for the API in metrics."""

USAGE = Usage.NONE

BYTES_PER_TOKEN = 4

MAX_ESTIMATED_TOKENS = 8192
"""Where the estimate ends: a body that large is a picture or a recording sooner than a prompt."""


def parse(body: bytes) -> ParsedBody:
    """Return what a body of this size is taken for."""
    tokens = min(len(body) // BYTES_PER_TOKEN, MAX_ESTIMATED_TOKENS)
    return ParsedBody(model="", texts=(), overhead_tokens=tokens)
