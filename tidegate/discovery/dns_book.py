"""What DNS answered, for each question by itself: pure, time is an argument.

Each question has its own time to be asked again, by its TTL, and its own last good answer: that one family or one
target fails takes nothing away from what the others say.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from tidegate import addresses
from tidegate.config_discovery import DnsSource
from tidegate.discovery.contract import MAX_ENDPOINTS, Found
from tidegate.fleet.endpoint import EndpointSpec

MAX_TARGETS = 1000
"""Targets of services that are resolved."""

MAX_WEIGHT = 1000

FAMILY_FAILURES = 2
"""How often one family of addresses may fail before the other is taken for all there is."""

Kind = Literal["A", "AAAA", "SRV"]
_FAMILIES: dict[str, tuple[Kind, ...]] = {"a": ("A",), "aaaa": ("AAAA",), "both": ("A", "AAAA"), "srv": ("A", "AAAA")}


class Question(NamedTuple):
    """What a server is asked."""

    name: str
    kind: Kind


class Service(NamedTuple):
    """An SRV record (RFC 2782)."""

    priority: int
    weight: int
    port: int
    target: str


@dataclasses.dataclass(slots=True)
class _Entry:
    due: float
    answered: bool = False
    addresses: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    failures: int = 0


class Book:
    """The answers for one source."""

    def __init__(self, settings: DnsSource, now: float) -> None:
        """Begin at ``now`` (seconds), with everything to be asked."""
        self._settings = settings
        self._families = _FAMILIES[settings.records]
        self._entries: dict[Question, _Entry] = {}
        self._keep(now)

    def due(self, now: float) -> list[Question]:
        """Return what is to be asked at ``now`` (seconds)."""
        return [question for question, entry in self._entries.items() if entry.due <= now]

    def next_due(self) -> float:
        """Return when something is to be asked next, in seconds."""
        return min(entry.due for entry in self._entries.values())

    def ask_again(self, now: float) -> None:
        """Make everything due at ``now`` (seconds) whose last answer was good."""
        for entry in self._entries.values():
            if not entry.failures:
                entry.due = now

    def answered(self, question: Question, records: Sequence[str | Service], ttl: float, now: float) -> None:
        """Take in the answer to ``question``, which is good for ``ttl`` seconds: addresses, or services."""
        if (entry := self._entries.get(question)) is None:
            return
        entry.answered, entry.failures = True, 0
        entry.addresses = tuple(record for record in records if isinstance(record, str))[:MAX_ENDPOINTS]
        entry.services = tuple(record for record in records if isinstance(record, Service))[:MAX_TARGETS]
        entry.due = now + min(max(ttl, self._settings.min_seconds), self._settings.max_seconds)
        self._keep(now)

    def failed(self, question: Question, now: float) -> None:
        """Take note that ``question`` got no usable answer; the last good one goes on."""
        if (entry := self._entries.get(question)) is None:
            return
        wait = self._settings.min_seconds * 2.0 ** min(entry.failures, 32)
        entry.failures += 1
        entry.due = now + min(wait, self._settings.max_seconds)

    def found(self) -> dict[str, Found] | None:
        """Return all endpoints; ``None`` until enough has been answered to say so."""
        if self._settings.records != "srv":
            known = self._addresses(self._settings.name)
            port = self._settings.port or 0
            return None if known is None else dict(_each(known, port, 1))
        if not self._entries[self._services_question].answered:
            return None
        found: dict[str, Found] = {}
        services = self._services()
        heaviest = max((service.weight for service in services), default=0)
        scale = min(1.0, MAX_WEIGHT / heaviest) if heaviest else 1.0
        for service in services:
            known = self._addresses(service.target)
            if known is None:
                return None
            found.update(_each(known, service.port, max(1, round(service.weight * scale))))
        return found

    @property
    def complete(self) -> bool:
        """Whether the last answer to everything was good; of the families of one name, to one at least."""
        services = self._settings.records != "srv" or not self._entries[self._services_question].failures
        return services and all(any(not entry.failures for entry in self._of(name)) for name in self._names())

    @property
    def _services_question(self) -> Question:
        return Question(self._settings.name, "SRV")

    def _services(self) -> list[Service]:
        """Return the services of the best priority: the others are there for when all of these fail."""
        services = self._entries[self._services_question].services
        # A target that is the root says that there is decidedly no such service.
        services = tuple(one for one in services if one.target not in {"", "."} and one.port)
        best = min((one.priority for one in services), default=0)
        return [one for one in services if one.priority == best]

    def _addresses(self, name: str) -> list[str] | None:
        entries = self._of(name)
        settled = all(entry.answered or entry.failures >= FAMILY_FAILURES for entry in entries)
        if not settled or not any(entry.answered for entry in entries):
            return None
        return [address for entry in entries for address in entry.addresses]

    def _of(self, name: str) -> list[_Entry]:
        return [self._entries[Question(name, family)] for family in self._families]

    def _names(self) -> list[str]:
        if self._settings.records != "srv":
            return [self._settings.name]
        return [service.target for service in self._services()]

    def _wanted(self) -> Iterator[Question]:
        if self._settings.records == "srv":
            yield self._services_question
        yield from (Question(name, family) for name in self._names() for family in self._families)

    def _keep(self, now: float) -> None:
        """Have exactly the questions that are of use; new ones are due at ``now``."""
        if self._settings.records == "srv":
            self._entries.setdefault(self._services_question, _Entry(now))
        self._entries = {question: self._entries.get(question) or _Entry(now) for question in self._wanted()}


def _each(known: Sequence[str], port: int, weight: int) -> Iterator[tuple[str, Found]]:
    for address in known:
        place = addresses.joined(address, port)
        yield place, Found(EndpointSpec(place, weight))
