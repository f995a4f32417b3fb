"""A worker: it holds a replica of the fleet, and answers ext_proc from it."""

import asyncio
import contextlib
import functools
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from extproc.health import Health
from tidegate.config import Config
from tidegate.config_values import CHECKED
from tidegate.fleet.events import RequestEnded, RequestReserved, ReservationReleased
from tidegate.fleet.state import Fleet
from tidegate.runtime import services
from tidegate.runtime.correlation import Correlation
from tidegate.runtime.decider import Decider
from tidegate.runtime.workers import messages
from tidegate.runtime.workers.channel import Channel
from tidegate.runtime.workers.messages import ToWorker
from tidegate.runtime.workers.remote_till import RemoteTill
from tidegate.runtime.workers.tally import Tally
from tidegate.telemetry.log import event
from tidegate.tokens.correction import Corrections

logger = logging.getLogger("tidegate.worker")

DRAIN_SECONDS: Final = 2.5
"""How long a worker that leaves goes on answering: Envoy asks for its health every second, and may take one to hear."""

REPORT_SECONDS: Final = 0.1
SIGN_OF_LIFE: Final = 10
"""Pause between two reports of figures, and every how many of them there is one even without figures."""


def orphaned() -> None:
    """End this process at once: the main process is gone, and the next one needs the port."""
    event(logger, "the main process is gone")
    os._exit(1)


class Worker:
    """One worker's life. It is a ``Journal``."""

    def __init__(self, orphaned: Callable[[], None] = orphaned) -> None:
        """Call ``orphaned`` when the main process is gone."""
        self._orphaned = orphaned
        self._told: asyncio.Queue[messages.Prepare | messages.Decide] = asyncio.Queue()
        self._welcome: asyncio.Future[messages.Welcome] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._health = Health(serving=False)
        self._stop = asyncio.Event()
        self._tally = Tally()
        self._corrections = Corrections()
        self._till = RemoteTill(self._send, self._tally.unauthenticated)
        self._fleet = Fleet(1.0)
        self._decider: Decider | None = None
        self._channel: Channel[ToWorker] | None = None
        self._finished = False

    def leave(self) -> None:
        """Go on until Envoy has noticed, and then end (SIGTERM)."""
        self._leaving.set()

    async def run(self, sock: socket.socket) -> None:
        """Serve until told to stop, or to leave.

        Raises:
            BindError: the port cannot be bound.
            VocabularyError: a vocabulary is missing.
        """
        self._channel = await Channel.over(sock, messages.to_worker, self._receive, self._closed)
        welcome = await self._welcome
        # In a thread: facts go on arriving.
        config = await asyncio.to_thread(_config, welcome.config)
        decider = Decider(
            *(self._fleet, self._corrections, self._tally, Correlation().new_id, self),
            started_at=welcome.started_at,
            till=self._till,
        )
        with contextlib.closing(decider):
            decider.configure(config)
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._report()), tasks.create_task(self._follow(decider))]
                running.append(tasks.create_task(decider.waiting_room.run()))
                self._decider = decider
                if log := decider.recording(config, f".{welcome.port}"):
                    running.append(tasks.create_task(log.run()))
                # It listens before it says that it does: where no other worker is well, Envoy asks it all the same, and
                # an estimate beats an error.
                async with services.ext_proc(config.control, welcome.port, decider.desk, health=self._health):
                    await decider.warm(config)
                    await self._told.join()
                    self._health.say(serving=True)
                    self._send(messages.Ready())
                    await self._until_over()
                    decider.waiting_room.close()
                for task in running:
                    task.cancel()
        self._send(messages.Counted(self._tally.take()))
        self._finished = True
        await self._channel.close()

    async def _until_over(self) -> None:
        ends = asyncio.ensure_future(self._stop.wait()), asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                return
            self._health.say(serving=False)
            self._send(messages.Leaving())
            event(logger, "leaving", seconds=DRAIN_SECONDS)
            await asyncio.wait(ends[:1], timeout=DRAIN_SECONDS)
        finally:
            for end in ends:
                end.cancel()

    async def _report(self) -> None:
        """Tell what was counted, for ever."""
        silent = 0
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            silent += 1
            if (calls := self._tally.take()) or silent >= SIGN_OF_LIFE:
                self._send(messages.Counted(calls))
                silent = 0

    async def _follow(self, decider: Decider) -> None:
        """Go over to one configuration after another, for ever."""
        prepared: Callable[[], None] | None = None
        while True:
            match await self._told.get():
                case messages.Prepare(number, text):
                    config = await asyncio.to_thread(_config, text)
                    await decider.prompts.load(config)
                    prepared = functools.partial(decider.configure, config)
                    self._send(messages.Prepared(number))
                case messages.Decide(number):
                    if prepared is not None:
                        prepared()
                    self._send(messages.Deciding(number))
            self._told.task_done()

    # -- what the main process says

    def _receive(self, message: ToWorker) -> None:
        match message:
            case messages.Answered(request_id, answer):
                self._till.answered(request_id, answer)
            case messages.Taught(pool, model, counted, reported):
                self._corrections.learn(pool, model, counted, reported)
            case messages.Prepare() | messages.Decide():
                self._told.put_nowait(message)
            case messages.Stop():
                self._stop.set()
            case messages.Welcome():
                self._fleet.restore(message.fleet, time.monotonic())
                self._corrections.restore(message.corrections)
                self._welcome.set_result(message)
            case _:
                changes = self._fleet.apply(message.event, message.now)
                if changes and self._decider is not None:
                    ended = isinstance(changes[0], ReservationReleased)
                    self._decider.waiting_room.changed(endpoints=not ended)

    def _closed(self) -> None:
        if not self._finished:
            self._orphaned()

    # -- what the main process is told

    def _send(self, message: messages.FromWorker) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def reserved(self, event: RequestReserved) -> None:
        """Tell of a reservation; the replica has it."""
        self._send(messages.Reserved(event))

    def delivered(self, reservation_id: str) -> None:
        """Tell that it outlives this process."""
        self._send(messages.Delivered(reservation_id))

    def abandoned(self, reservation_id: str) -> None:
        """Release it here and there."""
        self._fleet.apply(RequestEnded(reservation_id), time.monotonic())
        self._send(messages.Abandoned(reservation_id))


def _config(text: bytes) -> Config:
    """Return the configuration that ``text``, its JSON, stands for. It was checked by the main process."""
    return Config.model_validate_json(text, context=CHECKED)
