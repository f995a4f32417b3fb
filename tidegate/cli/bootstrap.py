"""``tidegate bootstrap``: print what Envoy must know before it can ask for the rest."""

from pathlib import Path

import click

from tidegate.cli._options import config_option, load_or_exit
from xds import bootstrap


@click.command("bootstrap", short_help="Print the Envoy bootstrap that joins a control plane.")
@config_option
@click.option("--group", metavar="NAME", help="Of which group it is to be. Default: whichever takes it.")
@click.option(
    "--id", "node_id", default="", metavar="TEXT", help="What it calls itself. Default: by its group, or envoy."
)
@click.option(
    "--admin-port",
    type=click.IntRange(1, 65_535),
    metavar="PORT",
    help="Where its admin page listens, for a second Envoy on one machine. Default: envoy.admin_port.",
)
@click.option(
    "--secrets",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write there, for Envoy's machine, where its certificates are; it then follows them when they are renewed.",
)
def command(file: Path, group: str | None, node_id: str, admin_port: int | None, secrets: Path | None) -> None:
    """Print the Envoy bootstrap (YAML) that joins the control plane of a configuration."""
    config = load_or_exit(file)
    if admin_port is not None:
        config = config.model_copy(update={"envoy": config.envoy.model_copy(update={"admin_port": admin_port})})
    try:
        node = config.envoys.node(group, node_id)
    except ValueError as error:
        click.echo(f"tidegate: {error}", err=True)
        raise SystemExit(2) from None
    folder = None if secrets is None else str(secrets.resolve())
    if secrets is not None:
        write_secrets(secrets, bootstrap.secret_files(config))
    click.echo(bootstrap.render(config, bootstrap.template(), node, folder), nl=False)


def write_secrets(folder: Path, files: dict[str, str]) -> None:
    """Write ``files`` into ``folder``, or say why not and exit with status 1."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content)
    except OSError as error:
        click.echo(f"tidegate: cannot write into {folder}: {error.strerror}", err=True)
        raise SystemExit(1) from None
