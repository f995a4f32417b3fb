"""GPU hosts for a stack: an engine each, and a real agent on a stand-in for the driver."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.agent.stub import Orders
from tests.authority import HERE, Authority
from tests.e2e.stack import ROOT, tidegate

FULL = 80 << 30
"""VRAM of a GPU of the stand-in, in bytes."""


@dataclass
class GpuNode:
    """One GPU host, which ``name`` names; its agent reports to ``port`` and shows a certificate for ``identity``."""

    name: str
    folder: Path
    library: Path
    port: int
    engine: int
    authorities: tuple[Authority, Authority] | None = None
    identity: str = ""
    orders: Orders = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.orders = Orders(self.library, self.folder / f"orders-{self.name}")

    @property
    def log(self) -> str:
        """What the agent has said."""
        return (self.folder / f"agent-{self.name}.log").read_text()

    def start(self) -> None:
        """Start the agent."""
        options = ["--control", f"{HERE}:{self.port}", "--node", self.name, "--interval", "0.25"]
        options += ["--nvml-deadline", "0.5", "--engine", f"http://{HERE}:{self.engine}"]
        if self.authorities is not None:
            ours, theirs = self.authorities
            certificate, key = theirs.issue(f"{self.folder.name}-{self.name}", self.identity or self.name)
            options += ["--certificate", str(certificate), "--key", str(key), "--ca", str(ours.certificate)]
        with (self.folder / f"agent-{self.name}.log").open("ab") as output:
            self.process = subprocess.Popen(
                tidegate("agent", *options), cwd=ROOT, stdout=output, stderr=output, env=self.orders.environment
            )

    def kill(self) -> None:
        """Have the agent say nothing any more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Start it anew, as one does after a GPU was reset."""
        self.kill()
        self.start()
