"""From a window of readings to a state with reasons. Pure: no clock, no I/O.

Each reason is held for a time of its own after it was last seen, so that a state does not follow every single reading.
How full VRAM is, is no reason: that is judged for each request, by whoever places it.
"""

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tidegate.agent.readings import Answer, Reading
from tidegate.agent.xids import UNKNOWN_XID, XIDS, XidClass

WINDOW_SECONDS = 60.0
"""How far back readings count."""

MAX_REASONS = 32
"""The worst are kept."""


class State(enum.IntEnum):
    """What to think of a GPU, from good to bad."""

    HEALTHY = 0
    UNKNOWN = 1
    DEGRADED = 2
    FAILED = 3


class Rules(NamedTuple):
    """Where the lines are drawn. Counts are per minute; what is not from NVIDIA is an order of magnitude.

    Attributes:
        xids: what each Xid says.
        stale_seconds: without a reading for so long, nothing is known.
        sustained_seconds: how long a temperature must have been too high.
        corrected_ecc_per_minute: corrected memory errors; from there on something is wearing out.
        nvlink_errors_per_minute: replays, recoveries and CRC errors of all links together.
        pcie_replays_per_minute: packets sent again.
        condemned_seconds: how long a condemning Xid is held. An agent that starts anew has forgotten it.
        watched_seconds: how long a doubtful one is held.
        memory_seconds: how long memory errors are held.
        hold_seconds: how long everything else is held.
    """

    xids: Mapping[int, XidClass] = XIDS
    stale_seconds: float = 10.0
    sustained_seconds: float = 10.0
    corrected_ecc_per_minute: int = 100
    nvlink_errors_per_minute: int = 1000
    pcie_replays_per_minute: int = 1000
    condemned_seconds: float = 3600.0
    watched_seconds: float = 300.0
    memory_seconds: float = 600.0
    hold_seconds: float = 60.0


class Finding(NamedTuple):
    """Something seen in the window, and how long to hold it once it is not seen any more (seconds)."""

    code: str
    state: State
    detail: str
    hold: float


class Reason(NamedTuple):
    """A finding since ``since``, last made at ``seen`` (seconds, monotonic)."""

    code: str
    state: State
    detail: str
    hold: float
    since: float
    seen: float


class Verdict(NamedTuple):
    """A state and its reasons, the worst first; a healthy GPU has none."""

    state: State
    reasons: tuple[Reason, ...] = ()


UNJUDGED = Verdict(State.UNKNOWN)

THROTTLES = frozenset({"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake"})
"""Clocks lowered for a reason that is not the plan. A power cap, an idle GPU or clocks set by someone are the plan."""


def judge(previous: Verdict, window: Sequence[Reading], now: float, rules: Rules) -> Verdict:
    """Return the verdict that follows ``previous``, from the readings of ``window``, oldest first."""
    before = {reason.code: reason for reason in previous.reasons}
    reasons = {
        found.code: Reason(*found, since=before[found.code].since if found.code in before else now, seen=now)
        for found in findings([reading for reading in window if now - reading.at <= WINDOW_SECONDS], now, rules)
    }
    for code, reason in before.items():
        if code not in reasons and max(0.0, now - reason.seen) < reason.hold:
            reasons[code] = reason
    worst = sorted(reasons.values(), key=lambda reason: (-reason.state, reason.since, reason.code))[:MAX_REASONS]
    return Verdict(worst[0].state if worst else State.HEALTHY, tuple(worst))


def findings(window: Sequence[Reading], now: float, rules: Rules) -> Iterator[Finding]:
    """Iterate over what ``window`` shows, each code once."""
    yield from _answering(window, now, rules)
    yield from _xids(window, rules)
    if window:
        yield from _memory(window, rules)
        yield from _heat(window, rules)
        yield from _links(window, rules)


def _answering(window: Sequence[Reading], now: float, rules: Rules) -> Iterator[Finding]:
    if not window or now - window[-1].at > rules.stale_seconds:
        yield Finding("no_readings", State.UNKNOWN, "nothing was read of late", 0.0)
        return
    match window[-1].answer:
        case Answer.LOST:
            yield Finding("gpu_lost", State.FAILED, "the GPU is lost", rules.hold_seconds)
        case Answer.RESET_REQUIRED:
            yield Finding("reset_required", State.FAILED, "the GPU needs a reset", rules.hold_seconds)
        case Answer.HUNG:
            yield Finding("nvml_hung", State.DEGRADED, "a call to NVML does not return", rules.hold_seconds)
        case Answer.SILENT:
            yield Finding("no_readings", State.UNKNOWN, "nothing can be read", 0.0)
        case Answer.READ:
            pass


def _xids(window: Sequence[Reading], rules: Rules) -> Iterator[Finding]:
    for number in sorted({xid.number for reading in window for xid in reading.xids}):
        match rules.xids.get(number, UNKNOWN_XID):
            case XidClass.CONDEMN:
                yield Finding(f"xid_{number}", State.FAILED, f"Xid {number}", rules.condemned_seconds)
            case XidClass.WATCH:
                yield Finding(f"xid_{number}", State.DEGRADED, f"Xid {number}", rules.watched_seconds)
            case XidClass.APPLICATION:
                pass


def _memory(window: Sequence[Reading], rules: Rules) -> Iterator[Finding]:
    last, hold = window[-1], rules.hold_seconds
    grown = growth([reading.ecc and reading.ecc.uncorrected for reading in window])
    if grown:
        yield Finding("ecc_uncorrected", State.DEGRADED, f"{grown} uncorrected memory errors", rules.memory_seconds)
    grown = growth([reading.ecc and reading.ecc.corrected for reading in window])
    if grown >= rules.corrected_ecc_per_minute:
        yield Finding("ecc_corrected", State.DEGRADED, f"{grown} corrected memory errors", rules.memory_seconds)
    if last.row_remap and last.row_remap.failed:
        yield Finding("row_remap_failed", State.FAILED, "a row of memory could not be remapped", hold)
    if last.row_remap and last.row_remap.pending:
        yield Finding("row_remap_pending", State.DEGRADED, "rows of memory wait for a reset to be remapped", hold)
    if last.retired_pages and last.retired_pages.pending:
        yield Finding("page_retirement_pending", State.DEGRADED, "pages of memory wait for a reset to be retired", hold)


def _heat(window: Sequence[Reading], rules: Rules) -> Iterator[Finding]:
    hot = 0.0
    for reading in reversed(window):
        heat = reading.temperature
        if heat is None or heat.celsius is None or not heat.slowdown_celsius or heat.celsius < heat.slowdown_celsius:
            break
        hot = window[-1].at - reading.at
    if hot >= rules.sustained_seconds:
        detail = f"hot enough to slow down for {hot:.0f} s"
        yield Finding("temperature", State.DEGRADED, detail, rules.hold_seconds)
    known = [reading.power.throttled for reading in window if reading.power and reading.power.throttled is not None]
    for throttle in sorted(THROTTLES):
        times = sum(throttle in reasons for reasons in known)
        if len(known) >= 3 and 2 * times > len(known):
            detail = f"clocks lowered ({throttle}) in {times} of {len(known)} readings"
            yield Finding(throttle, State.DEGRADED, detail, rules.hold_seconds)


def _links(window: Sequence[Reading], rules: Rules) -> Iterator[Finding]:
    hold = rules.hold_seconds
    links = window[-1].nvlink
    if links and links.lost:
        yield Finding("nvlink_down", State.DEGRADED, f"{links.lost} NVLinks went down", hold)
    grown = growth([reading.nvlink and reading.nvlink.errors for reading in window])
    if grown >= rules.nvlink_errors_per_minute:
        yield Finding("nvlink_errors", State.DEGRADED, f"{grown} NVLink errors", hold)
    pcie = window[-1].pcie
    if pcie and pcie.width and pcie.max_width and pcie.width < pcie.max_width:
        yield Finding("pcie_width", State.DEGRADED, f"{pcie.width} of {pcie.max_width} PCIe lanes", hold)
    grown = growth([reading.pcie and reading.pcie.replays for reading in window])
    if grown >= rules.pcie_replays_per_minute:
        yield Finding("pcie_replays", State.DEGRADED, f"{grown} PCIe replays", hold)


def growth(counts: Sequence[int | None]) -> int:
    """Return by how much a counter grew, unknown values left out; one that starts anew counts from there."""
    known = [count for count in counts if count is not None]
    return sum(after - before for before, after in itertools.pairwise(known) if after > before)
