"""Asking a running control plane how it would decide, and having it do something."""

from collections.abc import Mapping
from typing import Any

from tidegate.cli._admin import answer
from tidegate.telemetry.admin import EXPLAIN


def ask(admin: str, question: Mapping[str, Any]) -> bytes:
    """Ask the control plane at ``admin`` (host:port) how it would decide, and return the record that it answers with.

    Raises:
        ClickException: it cannot be asked, or has no answer.
    """
    return act(admin, EXPLAIN, question)


def act(admin: str, path: str, asked: Mapping[str, Any]) -> bytes:
    """Have the control plane at ``admin`` (host:port) do what is ``asked`` at ``path``, and return its answer.

    Raises:
        ClickException: it cannot be asked, or will not.
    """
    return answer(admin, path, asked, quoted=(400, 404, 409))
