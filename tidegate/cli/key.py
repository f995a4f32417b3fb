"""``tidegate key``: make an API key, and what the configuration holds of it."""

import secrets
import sys

import click

from tidegate.runtime.callers import hashed

PREFIX = "sk-tidegate-"
"""What keys begin with, by which scanners for secrets know them."""

KEY_BYTES = 32
"""Random bytes of a key: too many to be guessed from its hash."""


@click.command("key", short_help="Make an API key and print its hash.")
@click.option(
    "--hash",
    "from_input",
    is_flag=True,
    help="Make none: print the hash of the key on standard input. It must be random and long.",
)
def command(from_input: bool) -> None:
    """Make an API key; print the key, which is for its owner, and its hash, which is for the configuration."""
    if not from_input:
        key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
        click.echo(f"key:  {key}\nhash: {hashed(key)}")
        return
    given = sys.stdin.readline().strip()
    if not given:
        raise click.ClickException("expected a key on standard input")
    click.echo(hashed(given))
