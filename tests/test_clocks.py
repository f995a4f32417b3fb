"""The wall clock may be set: nothing that takes time is measured by it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WALL_CLOCK = re.compile(r"\btime\.time\b|\bdatetime\.(?:now|utcnow|today)\b|\btime\.time_ns\b|\bdate\.today\b")

DATES = {
    "tidegate/certificates.py": "whether a certificate is over",
    "tidegate/pem.py": "likewise",
    "tidegate/runtime/certificates.py": "when certificates are over, as a metric",
    "tidegate/runtime/inquiry.py": "the date of a record",
    "tidegate/runtime/health_events.py": "the date of an event",
    "tidegate/telemetry/decision_log.py": "the date of a record",
    "tidegate/runtime/control_plane.py": "what tenants used today, and the date of models in lists",
    "tidegate/runtime/shared_limits.py": "likewise, where the clock of Redis counts and this one only while it is away",
    "tidegate/runtime/picker.py": "the date of models in lists",
    "tidegate/runtime/workers/team.py": "the date of models in lists",
    "tidegate/tokens/chat_template.py": "the date that a chat template writes into prompts",
    "tidegate/simulator/server.py": "the date of an answer",
    "tidegate/simulator/inference.py": "the date of an answer",
    "tidegate/simulator/kv_publisher.py": "the date of an event",
}
"""Who reads it, and what for."""


def test_the_wall_clock_is_read_for_dates_and_for_budgets_alone() -> None:
    sources = (path for folder in ("tidegate", "extproc", "xds") for path in (ROOT / folder).rglob("*.py"))
    readers = {str(path.relative_to(ROOT)) for path in sources if WALL_CLOCK.search(path.read_text(encoding="utf-8"))}
    assert readers == {*DATES}, "whatever lasts is measured by the monotonic clock"
