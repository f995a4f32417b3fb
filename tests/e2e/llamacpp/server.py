"""llama.cpp's own HTTP server, in the foreground: ``python server.py MODEL PORT``; SIGTERM ends it.

Four slots share the context, so the fifth request waits: ``llamacpp:requests_deferred`` on /metrics counts it.
"""

import os
import signal
import sys
from pathlib import Path

import xllamacpp

SLOTS = 4
CONTEXT_PER_SLOT = 32_768  # tokens; long enough for a stream of several seconds


def parameters(model: Path, port: int) -> xllamacpp.CommonParams:
    """Return llama.cpp's settings: one thread, no warm-up, /metrics, /slots and /props served."""
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.model_alias = {model.stem}
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.n_ctx = SLOTS * CONTEXT_PER_SLOT
    settings.n_parallel = SLOTS
    settings.endpoint_metrics = True
    settings.endpoint_slots = True
    settings.endpoint_props = True
    settings.use_jinja = True
    settings.warmup = False
    settings.n_gpu_layers = 0
    settings.kv_unified = False
    settings.fit_params = False
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    return settings


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server starts its threads, which inherit the mask: only sigwait below takes these signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(parameters(Path(sys.argv[1]), int(sys.argv[2])))
    print(server.listening_address, flush=True)
    signal.sigwait(stop)
    # The server's destructor waits for open streams, 30 seconds and more; here an engine that is told to stop stops.
    os._exit(0)


if __name__ == "__main__":
    main()
