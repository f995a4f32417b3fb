"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from tidegate.config import Config, ConfigError, load

LogFormat = Literal["text", "json"]

F = TypeVar("F", bound=Callable[..., Any])

config_option: Callable[[F], F] = click.option(
    "--config", "file", type=click.Path(path_type=Path), required=True, help="The configuration file (YAML)."
)

log_format_option: Callable[[F], F] = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the log lines.",
)


def load_or_exit(file: Path, context: str | None = None) -> Config:
    """Return the configuration in ``file``; say what is wrong with it and exit with status 2 when it cannot be used.

    ``context`` is as for ``load``.
    """
    try:
        return load(file, context)
    except ConfigError as error:
        click.echo(str(error), err=True)
        raise SystemExit(2) from None
