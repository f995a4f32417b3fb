"""What one client wants of one resource type, and what it has of it. Pure; one writer, its stream.

At most one response is unanswered at a time: it is the flow control, and it makes an answer unambiguous. The rules are
those of https://www.envoyproxy.io/docs/envoy/v1.40.0/api-docs/xds_protocol.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xds.snapshot import Resource
from xds.type_urls import FULL_STATE

WILDCARD = "*"

ABSENT = ""
"""The version of a resource that the client asked for and was told does not exist."""

MAX_NAMES = 10_000
"""Names that one client may ask for in one type."""


class TooManyNamesError(ValueError):
    """The client asks for more names than ``MAX_NAMES``."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a response holds.

    Attributes:
        type_url: the type.
        resources: what is sent, in the order of their names.
        changed: the versions that are new to the client, by name.
        removed: names that it should forget.
        complete: ``resources`` is all that the client should have of the type (state of the world).
    """

    type_url: str
    resources: tuple[Resource, ...]
    changed: Mapping[str, str]
    removed: tuple[str, ...] = ()
    complete: bool = False


@dataclass(slots=True)
class Subscription:
    """The state of one type on one stream.

    Attributes:
        type_url: the type.
        wildcard: everything is wanted, whatever its name.
        named: the client subscribed by name at some time, so that no names no longer mean everything.
        names: what is wanted by name.
        held: the versions that the client acknowledged, by name; ``ABSENT`` where it knows that there is none.
        known: those of them whose content is known. After a reconnect a client says which versions it holds, not what
            is in them.
        again: what must be sent even though it is held.
        repeated: what the unanswered response holds of that.
        offered: the unanswered response.
        nonce: of the last response sent; empty before the first.
        suspects: versions of a rejected response that held several: sent again one at a time, to tell which is bad.
        rejected: versions that were rejected alone. They are not sent again on this stream while they are wanted.
    """

    type_url: str
    wildcard: bool = False
    named: bool = False
    names: set[str] = field(default_factory=set)
    held: dict[str, str] = field(default_factory=dict)
    known: dict[str, Resource] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)
    offered: Offer | None = None
    nonce: str = ""
    suspects: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)

    def wants(self, name: str) -> bool:
        """Tell whether the client subscribed to ``name``."""
        return self.wildcard or name in self.names

    def sent(self, offer: Offer, nonce: str) -> None:
        """Note that ``offer`` went out under ``nonce``."""
        self.offered, self.nonce = offer, nonce
        self.repeated = self.again & {*offer.changed, *offer.removed}
        self.again -= self.repeated

    def resend(self, names: Iterable[str]) -> None:
        """Send what the client wants of ``names`` once more."""
        self.again.update(name for name in names if self.wants(name))

    def request_names(self, names: Iterable[str]) -> None:
        """Take in the names of a state-of-the-world request: the whole subscription, anew.

        No names mean everything, for listeners and clusters, until the client first gives some. The same names again,
        in a request that answers nothing, are a new question: Envoy asks for an assignment again when its cluster
        changed, and warms the cluster until it comes.

        Raises:
            TooManyNamesError: there are too many to remember.
        """
        wanted = set(names)
        if len(wanted) > MAX_NAMES:
            raise TooManyNamesError
        self.named = self.named or bool(wanted)
        asked_again = self.nonce != "" and self.offered is None and wanted - {WILDCARD} == self.names
        self.wildcard = WILDCARD in wanted or (not self.named and self.type_url in FULL_STATE)
        self.names = wanted - {WILDCARD}
        if asked_again:
            self.resend(self.held)
        self._drop_unwanted()

    def subscribe(self, names: Iterable[str]) -> None:
        """Take in the subscriptions of an incremental request.

        What a client subscribes to is sent, even if it was sent before.

        Raises:
            TooManyNamesError: there are too many to remember.
        """
        added = set(names)
        if len(self.names | added) > MAX_NAMES:
            raise TooManyNamesError
        self.named = self.named or bool(added)
        self.wildcard = self.wildcard or WILDCARD in added
        self.names |= added - {WILDCARD}
        self.resend(added - {WILDCARD})

    def subscribe_to_all(self) -> None:
        """Take in a first incremental request without names, which for some types means everything."""
        self.wildcard = self.type_url in FULL_STATE

    def unsubscribe(self, names: Iterable[str]) -> None:
        """Take in what an incremental request no longer wants."""
        gone = set(names)
        self.wildcard = self.wildcard and WILDCARD not in gone
        self.names -= gone
        self._drop_unwanted()

    def resume(self, versions: Mapping[str, str]) -> None:
        """Take in the versions that a client has from an earlier stream.

        Raises:
            TooManyNamesError: there are too many to remember.
        """
        if len(versions) > MAX_NAMES:
            raise TooManyNamesError
        self.held = {name: version for name, version in versions.items() if self.wants(name)}
        self.again.clear()

    def recognise(self, resources: Mapping[str, Resource]) -> None:
        """Learn the content of what the client holds from ``resources`` of the same versions.

        A rejected version that is no longer wanted is forgotten: when it is wanted again, what spoke against it (a port
        that was taken, say) may have passed.
        """
        self.rejected = {
            name: version
            for name, version in self.rejected.items()
            if name in resources and resources[name].version == version
        }
        if len(self.known) == len(self.held):
            return
        for name, version in self.held.items():
            resource = resources.get(name)
            if name not in self.known and resource is not None and resource.version == version:
                self.known[name] = resource

    def acknowledge(self) -> Offer | None:
        """Take in that the client applied the unanswered response; return it."""
        offer, self.offered = self.offered, None
        if offer is not None:
            self._hold(offer)
        return offer

    def reject(self) -> Offer | None:
        """Take in that the client refused the unanswered response; return it.

        What the client has is then what it had. Every rejection makes progress, so that none is repeated for ever: of
        the versions that were new to it, several become suspects, a single one is rejected for good; and where there
        was none, removals count as done.
        """
        offer, self.offered = self.offered, None
        if offer is None:
            return None
        new = {name: version for name, version in offer.changed.items() if self.held.get(name) != version}
        if not new:
            self._forget(offer.removed)
            return offer
        # What had to be sent again has still to be, if only as it was.
        self.again |= self.repeated
        if len(new) == 1:
            self.rejected |= new
            self.suspects = {name: version for name, version in self.suspects.items() if name not in new}
        else:
            self.suspects |= new
        return offer

    def _hold(self, offer: Offer) -> None:
        for resource in offer.resources:
            if self.wants(resource.name):
                self.held[resource.name] = resource.version
                self.known[resource.name] = resource
        for name in offer.removed:
            self._forget([name])
            if name in self.names:
                self.held[name] = ABSENT
        for name, version in offer.changed.items():
            if self.suspects.get(name) == version:
                del self.suspects[name]

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.held.pop(name, None)
            self.known.pop(name, None)

    def _drop_unwanted(self) -> None:
        self._forget([name for name in self.held if not self.wants(name)])
        self.again = {name for name in self.again if self.wants(name)}
