"""``tidegate engine``: simulated engines to develop and test against."""

import asyncio
import importlib.util
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import uvloop

from tidegate.cli._options import LogFormat, log_format_option
from tidegate.simulator import settings as defaults
from tidegate.simulator.profiles import PROFILES, Profile
from tidegate.simulator.server import ListenError, serve
from tidegate.simulator.settings import EngineSettings
from tidegate.telemetry import log


@click.command("engine", short_help="Run simulated engines that look like vLLM.")
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    required=True,
    help="Port to listen on; repeat it for several engines in one process.",
)
@click.option(
    "--profile",
    "profiles",
    type=click.Choice(tuple(PROFILES)),
    multiple=True,
    default=("h100",),
    show_default=True,
    help="GPU to imitate: one for all ports, or one for each, in their order.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="IP address to listen on.")
@click.option("--model", default=defaults.DEFAULT_MODEL, show_default=True, help="Name of the model.")
@click.option(
    "--max-model-len",
    type=click.IntRange(1),
    show_default="32768, or what the KV cache holds",
    help="Longest prompt and answer together, in tokens.",
)
@click.option("--max-num-seqs", type=click.IntRange(1), show_default="by profile", help="Requests in the batch.")
@click.option(
    "--num-gpu-blocks", type=click.IntRange(2), show_default="by profile", help="Blocks of KV cache, of 16 tokens each."
)
@click.option(
    "--max-queue",
    type=click.IntRange(0),
    default=defaults.DEFAULT_MAX_QUEUE,
    show_default=True,
    help="Requests accepted beyond a full batch; more are answered with 503.",
)
@click.option(
    "--mean-output-tokens",
    type=click.FloatRange(1),
    default=defaults.DEFAULT_MEAN_OUTPUT_TOKENS,
    show_default=True,
    help="Mean length of an answer that nothing else limits, in tokens.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="How many times as fast as its profile.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Where random draws start.")
@click.option(
    "--metrics-names",
    type=click.Choice(("current", "old")),
    default="current",
    show_default=True,
    help="Names on /metrics: those of vLLM 0.32, or older ones.",
)
@click.option(
    "--fail-rate",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of requests answered with 500.",
)
@click.option("--hang", is_flag=True, help="Accept connections and never answer.")
@click.option(
    "--kv-events-port",
    "kv_events_ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="Port to publish KV events on over ZMQ, one for each port, in their order; needs tidegate[kv-events].",
)
@click.option(
    "--kv-events-replay-port",
    "kv_events_replay_ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="Port that repeats them, likewise.",
)
@click.option("--kv-events-topic", default="", help="Topic of the KV events.")
@log_format_option
def command(
    ports: tuple[int, ...],
    profiles: tuple[str, ...],
    max_num_seqs: int | None,
    num_gpu_blocks: int | None,
    kv_events_ports: tuple[int, ...],
    kv_events_replay_ports: tuple[int, ...],
    log_format: LogFormat,
    **options: Any,
) -> None:
    """Run simulated engines that look like vLLM, until SIGINT or SIGTERM.

    They serve chat completions, completions, embeddings, /v1/models, /metrics and /health, and answer 404 to the rest.

    A token is four bytes of text. Every answer says in its header x-served-by which engine gave it; real engines do
    not. POST /fault sets faults, GET /fault shows them: {"fail_rate": 0.5}, {"slow": 3}, {"hang": true},
    {"unhealthy": true}, {"freeze": true}, {"error_after": 5}, {"break_after": 5}, {"comments": true},
    {"slow_health": 5}, {"slow_metrics": true}, {"unloaded": true}, {"poison": "text"}, {"oom_tokens": 9000},
    {"die": true}, {"reset": true}.
    """
    if len(profiles) not in {1, len(ports)}:
        raise click.UsageError(
            f"{len(profiles)} profiles for {len(ports)} ports; expected one for all, or one for each"
        )
    if len(kv_events_ports) not in {0, len(ports)} or len(kv_events_replay_ports) not in {0, len(kv_events_ports)}:
        raise click.UsageError(
            "expected as many ports for KV events, and to repeat them, as there are engines, or none"
        )
    if kv_events_ports and importlib.util.find_spec("zmq") is None:
        raise click.UsageError("the package pyzmq, which publishes KV events, is missing; install tidegate[kv-events]")
    chosen = [_resized(PROFILES[name], max_num_seqs, num_gpu_blocks) for name in profiles]
    chosen *= len(ports) // len(chosen)
    try:
        engines = [
            EngineSettings(port=port, profile=profile, kv_events_port=events, kv_events_replay_port=replay, **options)
            for port, profile, events, replay in zip(
                ports,
                chosen,
                kv_events_ports or [None] * len(ports),
                kv_events_replay_ports or [None] * len(ports),
                strict=True,
            )
        ]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    log.setup(log_format)
    try:
        uvloop.run(_until_signalled(engines))
    except ListenError as error:
        click.echo(f"tidegate engine: {error}", err=True)
        raise SystemExit(1) from None


def _resized(profile: Profile, max_num_seqs: int | None, num_gpu_blocks: int | None) -> Profile:
    return replace(
        profile,
        max_num_seqs=max_num_seqs or profile.max_num_seqs,
        num_gpu_blocks=num_gpu_blocks or profile.num_gpu_blocks,
    )


async def _until_signalled(engines: Sequence[EngineSettings]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(engines, stop)
