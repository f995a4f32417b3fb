"""``tidegate up``: everything on this machine, Envoy included."""

import asyncio
import signal
import tempfile
from pathlib import Path

import click

from tidegate.cli._options import LogFormat, load_or_exit, log_format_option
from tidegate.config import Config
from tidegate.runtime import demo, descriptors
from tidegate.runtime.envoy_binary import EnvoyMissingError, locate
from tidegate.runtime.local_stack import Stack, StartError, url
from tidegate.telemetry import log
from xds import bootstrap


@click.command("up")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Your fleet's configuration file (YAML). Without it, four simulated engines are started and served.",
)
@log_format_option
def command(file: Path | None, log_format: LogFormat) -> None:
    """Run the control plane and a real Envoy, in the foreground; Ctrl-C stops everything."""
    log.setup(log_format)
    descriptors.raise_limit()
    if file is not None:
        _run(file, demo_engines=False, log_format=log_format)
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        demo_file = Path(folder, "tidegate.yaml")
        demo_file.write_text(demo.config_text())
        _run(demo_file, demo_engines=True, log_format=log_format)


def _run(file: Path, *, demo_engines: bool, log_format: LogFormat) -> None:
    config = load_or_exit(file)
    try:
        stack = Stack(
            config=config,
            config_file=file,
            bootstrap=bootstrap.render(config, bootstrap.template()),
            envoy=locate(),
            engine_arguments=demo.engine_arguments() if demo_engines else (),
            engine_ports=[engine.port for engine in demo.ENGINES] if demo_engines else (),
            log_format=log_format,
        )
        asyncio.run(_up(stack))
    except (StartError, EnvoyMissingError) as error:
        for line in str(error).splitlines():
            click.echo(f"tidegate: {line}", err=True)
        raise SystemExit(1) from None


async def _up(stack: Stack) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stack.run(stop, ready=lambda: click.echo(_welcome(stack.config)))


def _welcome(config: Config) -> str:
    """Return where everything listens, and three commands to paste."""
    clients = url(config.listener.address, config.listener.port)
    admin = url(config.admin.address, config.admin.port)
    envoy = url(config.envoy.admin_address, config.envoy.admin_port)
    names = [model for pool in config.pools for model in pool.models if "*" not in model]
    model = names[0] if names else "MODEL"
    ask = f"curl -s {clients}/v1/chat/completions -H 'content-type: application/json' -d"
    endpoints = [f"    {pool.name}: {endpoint.address}" for pool in config.pools for endpoint in pool.endpoints]
    hello = f'{{"model":"{model}","max_tokens":32,"messages":[{{"role":"user","content":"hello"}}]'
    return "\n".join(
        [
            "",
            "Tidegate is up. Ctrl-C stops everything.",
            f"  clients      {clients}/v1",
            f"  metrics      {admin}/metrics   (also /healthz, /readyz, /status)",
            f"  envoy admin  {envoy}",
            "  endpoints",
            *endpoints,
            "",
            "Try:",
            f"  {ask} '{hello}}}'",
            f"  {ask} '{hello},\"stream\":true}}' -N",
            f"  curl -s {admin}/metrics | grep tidegate_inflight",
            "",
        ]
    )
