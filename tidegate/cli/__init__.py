"""The command line: ``tidegate up``, ``serve``, ``check`` and the rest; one file per command."""

import importlib
import os
import pkgutil

import click

# Before anything imports gRPC: it would stop its threads around every fork, and whoever starts a child process forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


class _Commands(click.Group):
    """Finds each command in the file of its name, and imports it only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"{__name__}.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name}.command is not a click command")
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidegate", prog_name="tidegate")
def main() -> None:
    """An Envoy control plane for LLM inference fleets."""
