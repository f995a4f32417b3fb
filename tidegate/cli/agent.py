"""``tidegate agent``: watches the GPUs and the engine of one host, and tells the control plane."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import click
import uvloop
from google.protobuf import json_format

from tidegate.agent import nvml
from tidegate.agent.agent import Agent, Settings
from tidegate.agent.probe import UrlError, checked
from tidegate.agent.report import default_node
from tidegate.agent.reporter import Tls
from tidegate.agent.verdict import Rules
from tidegate.agent.xids import XidClassError, with_changes
from tidegate.cli._options import LogFormat, log_format_option
from tidegate.telemetry import log

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}", re.ASCII)
_pem = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("agent", short_help="Watch the GPUs of this host for the control plane.")
@click.option("--control", metavar="HOST:PORT", help="Where the control plane takes reports.")
@click.option(
    "--node", default=default_node, show_default="host name", help="Name of this node, as in its certificate."
)
@click.option(
    "--engine",
    "engines",
    metavar="URL",
    multiple=True,
    help="Where an engine on this node answers: http://HOST:PORT (asked for /health), with another path, or "
    "tcp://HOST:PORT. Repeat it for several.",
)
@click.option("--certificate", type=_pem, help="Our certificate with its chain (PEM). It must name the node.")
@click.option("--key", type=_pem, help="Its key (PEM).")
@click.option("--ca", type=_pem, help="The authorities that may have signed the control plane's certificate (PEM).")
@click.option("--server-name", help="Name that the control plane's certificate bears, if it is not the host's.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60),
    default=2.0,
    show_default=True,
    help="Seconds between two readings, and two reports.",
)
@click.option(
    "--nvml-deadline",
    type=click.FloatRange(0.05, 60),
    default=2.0,
    show_default=True,
    help="Seconds after which a call to NVML counts as hung.",
)
@click.option(
    "--probe-deadline",
    type=click.FloatRange(0.05, 60),
    default=2.0,
    show_default=True,
    help="Seconds within which an engine must answer.",
)
@click.option(
    "--xid",
    "xids",
    metavar="NUMBER=CLASS",
    multiple=True,
    help="What an Xid says, other than in our table: condemn, watch or application. Repeat it for several.",
)
@click.option("--once", is_flag=True, help="Look at everything once, print it as JSON, and exit; needs no --control.")
@log_format_option
def command(
    control: str | None,
    certificate: Path | None,
    key: Path | None,
    ca: Path | None,
    server_name: str | None,
    once: bool,
    log_format: LogFormat,
    **options: Any,
) -> None:
    """Watch the GPUs of this host (NVIDIA) and the engine beside them, and tell the control plane, until SIGTERM.

    What cannot be read is reported as unknown: without a driver or a GPU, the agent goes on and says so.
    """
    log.setup(log_format)
    settings = _settings(**options)
    tls = _tls(certificate, key, ca, server_name)
    if control is None and not once:
        raise click.UsageError("Missing option '--control' (or '--once').")
    agent = Agent(settings, nvml.bindings())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if once or control is None:
            click.echo(json_format.MessageToJson(runner.run(agent.look()), preserving_proto_field_name=True))
            return
        runner.run(_run(agent, control, tls))


def _settings(node: str, engines: tuple[str, ...], xids: tuple[str, ...], **seconds: float) -> Settings:
    if not _NODE.fullmatch(node):
        said = "expected a name of 1 to 253 letters, digits, dots, dashes, colons and underscores"
        raise click.BadParameter(said, param_hint="--node")
    try:
        rules = Rules(xids=with_changes(xids))
        return Settings(node, tuple(dict.fromkeys(map(checked, engines))), rules=rules, **seconds)
    except XidClassError as error:
        raise click.BadParameter(str(error), param_hint="--xid") from None
    except UrlError as error:
        raise click.BadParameter(str(error), param_hint="--engine") from None


def _tls(certificate: Path | None, key: Path | None, ca: Path | None, server_name: str | None) -> Tls | None:
    if certificate and key and ca:
        return Tls(certificate, key, ca, server_name)
    if certificate or key or ca or server_name:
        raise click.UsageError("TLS takes all of '--certificate', '--key' and '--ca'.")
    return None


async def _run(agent: Agent, control: str, tls: Tls | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await agent.run(control, tls, stop)
