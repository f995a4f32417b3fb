"""Watching the GPUs of this host: sweep after sweep, each GPU with its window of readings and its verdict."""

import asyncio
import collections
import logging
from collections.abc import Callable, Iterator

from tidegate.agent import nvml
from tidegate.agent.lane import Hung, Lane
from tidegate.agent.readings import Answer, Identity, Reading, Xid
from tidegate.agent.session import Driver, DriverState, Session, Unusable, opened, read
from tidegate.agent.signals.identity import unnamed
from tidegate.agent.verdict import UNJUDGED, Rules, State, Verdict, judge

REOPEN_SECONDS = 10.0
"""How long to wait before NVML is opened again, after it could not be used."""

RESET_SECONDS = 60.0
"""The same after a GPU was lost, or could not say who it is: NVML only finds it again, after a reset, when it is opened
anew. Each time in vain doubles it."""

MAX_RESET_SECONDS = 3600.0

READING_DEADLINES = 3
"""How many calls' deadlines all questions to one GPU may take together."""

MAX_READINGS = 120
MAX_XIDS = 16
"""Kept for each GPU."""

_GONE = frozenset({Answer.LOST, Answer.RESET_REQUIRED})
_log = logging.getLogger(__name__)


class Watched:
    """One GPU, by what is known of it over time; it stays known when it is gone."""

    def __init__(self, identity: Identity) -> None:
        """Know nothing but ``identity``."""
        self.identity = identity
        self.window: collections.deque[Reading] = collections.deque(maxlen=MAX_READINGS)
        self.xids: collections.deque[Xid] = collections.deque(maxlen=MAX_XIDS)
        self.verdict: Verdict = UNJUDGED
        self._new_xids: list[Xid] = []

    @property
    def last(self) -> Reading | None:
        """The last reading."""
        return self.window[-1] if self.window else None

    @property
    def gone(self) -> bool:
        """Whether it was lost, or needs a reset, when it was read last."""
        return self.last is not None and self.last.answer in _GONE

    @property
    def named(self) -> bool:
        """Whether it told its UUID."""
        return self.identity.uuid != unnamed(self.identity.ordinal)

    def heard(self, xid: Xid) -> None:
        """Keep ``xid`` for the next reading and for reports."""
        self.xids.append(xid)
        self._new_xids = [*self._new_xids[1 - MAX_XIDS :], xid]

    def add(self, reading: Reading, now: float, rules: Rules) -> None:
        """Take ``reading`` in and judge anew."""
        self.window.append(reading._replace(xids=tuple(self._new_xids)))
        self._new_xids = []
        before, self.verdict = self.verdict, judge(self.verdict, self.window, now, rules)
        if before.state is not self.verdict.state:
            reasons = ", ".join(reason.code for reason in self.verdict.reasons)
            fields = {"gpu": self.identity.uuid, "state": self.verdict.state.name.lower(), "reasons": reasons}
            level = logging.INFO if self.verdict.state is State.HEALTHY else logging.WARNING
            _log.log(level, "a GPU's state changed", extra={"fields": fields})


class Watch:
    """All GPUs of this host."""

    def __init__(self, library: nvml.Nvml | None, deadline: float, rules: Rules, now: Callable[[], float]) -> None:
        """Ask ``library``, with ``deadline`` seconds for each call; ``now`` is the time in seconds, monotonic."""
        self._library = library
        self._deadline = deadline
        self._rules = rules
        self._now = now
        self._lanes: dict[str, Lane] = {}
        self._session: Session | None = None
        self._reopen_at = now()
        self._gone_since: float | None = None
        self._reset_seconds = RESET_SECONDS
        self._said: DriverState | None = None
        # Nobody waits for events of a session while it is closed.
        self._opening = asyncio.Lock()
        self.driver = Driver(DriverState.ERROR)
        self.known: dict[str, Watched] = {}

    async def sweep(self) -> None:
        """Read every GPU once and judge it; whatever goes wrong shows in the readings."""
        await self._keep_open()
        session = self._session
        if session is None:
            self._add({})
            return
        gone = False
        try:
            async with asyncio.TaskGroup() as reading:
                budget = READING_DEADLINES * self._deadline
                tasks = {gpu.identity.uuid: reading.create_task(read(gpu, self._now, budget)) for gpu in session.gpus}
        except* nvml.DriverGone:
            gone = True
        if gone:
            await self._close(Driver(DriverState.NOT_LOADED, session.driver.version))
            self._add({})
            return
        self._take_xids(session)
        self._add({uuid: task.result() for uuid, task in tasks.items()})

    def _add(self, readings: dict[str, Reading]) -> None:
        now = self._now()
        # A GPU that NVML does not know any more was there before; without NVML nothing is known of any.
        absent = Answer.SILENT if self._session is None else Answer.LOST
        for uuid, watched in self.known.items():
            watched.add(readings.get(uuid) or Reading(now, absent), now, self._rules)
        gone = any(watched.gone or not watched.named for watched in self.known.values())
        self._gone_since = (self._gone_since or now) if gone else None
        if not gone:
            self._reset_seconds = RESET_SECONDS

    async def _keep_open(self) -> None:
        now = self._now()
        hung = any(lane.hung for lane in self._lanes.values())
        since = self._gone_since
        if self._session and since is not None and now - since >= self._reset_seconds and not hung:
            self._gone_since = now
            self._reset_seconds = min(2 * self._reset_seconds, MAX_RESET_SECONDS)
            await self._close(self._session.driver)
            self._reopen_at = now
        if self._session is None and now >= self._reopen_at:
            await self._open()

    async def _open(self) -> None:
        try:
            self._session = await opened(self._library, self._lane)
        except Unusable as error:
            self._reopen_at = self._now() + REOPEN_SECONDS
            if error.state is not self._said:
                self._said = error.state
                fields = {"state": error.state.value, "reason": str(error)}
                _log.warning("NVML cannot be used", extra={"fields": fields})
            self.driver = Driver(error.state, self.driver.version)
            return
        self.driver, self._said = self._session.driver, None
        present = {gpu.identity.uuid for gpu in self._session.gpus}
        self.known = {uuid: one for uuid, one in self.known.items() if one.named or uuid in present}
        for gpu in self._session.gpus:
            if gpu.identity.uuid not in self.known:
                _log.info("watching a GPU", extra={"fields": _named(gpu.identity)})
                self.known[gpu.identity.uuid] = Watched(gpu.identity)
            self.known[gpu.identity.uuid].identity = gpu.identity

    async def _close(self, driver: Driver) -> None:
        async with self._opening:
            session, self._session = self._session, None
            if session is not None:
                self._take_xids(session)
                await session.close()
        self.driver = driver
        self._reopen_at = self._now() + REOPEN_SECONDS

    async def hear_xids(self) -> None:
        """Wait for Xids, for ever; the next sweep takes them."""
        said = False
        while True:
            heard = False
            async with self._opening:
                if self._session is not None and self._session.hears_xids:
                    try:
                        await self._session.wait_for_xids()
                        heard, said = True, False
                    except (Hung, nvml.DriverGone) as error:
                        if not said:
                            _log.warning("no Xids can be waited for", extra={"fields": {"reason": str(error)}})
                        said = True
            await asyncio.sleep(0 if heard else 1)

    def _take_xids(self, session: Session) -> None:
        for uuid, xid in session.xids():
            fields = {"gpu": uuid, "xid": xid.number}
            _log.warning("the driver reports an Xid", extra={"fields": fields})
            if uuid in self.known:
                self.known[uuid].heard(xid)

    def _lane(self, name: str) -> Lane:
        if name not in self._lanes:
            self._lanes[name] = Lane(name, self._deadline)
        return self._lanes[name]

    async def close(self) -> None:
        """Let go of NVML and of the threads that wait for work."""
        if self._session is not None:
            await self._close(self.driver)
        for lane in self._lanes.values():
            lane.close()

    def __iter__(self) -> Iterator[Watched]:
        """Iterate over the GPUs by their index."""
        return iter(sorted(self.known.values(), key=lambda watched: (watched.identity.ordinal, watched.identity.uuid)))


def _named(identity: Identity) -> dict[str, str | int | None]:
    return {"gpu": identity.uuid, "index": identity.ordinal, "model": identity.name, "pci": identity.pci_bus_id}
