"""Engines that tell what they cache: where each is listened to, and how that goes."""

from collections.abc import Iterator, Mapping, Sequence

from tidegate import addresses
from tidegate.config import Config
from tidegate.engines.kv_source import KvSource, KvStanding
from tidegate.fleet.events import PoolsDeclared
from tidegate.telemetry.status import JsonObject


def sources(config: Config, declared: PoolsDeclared) -> Iterator[KvSource]:
    """Return where the engines of ``declared`` publish KV events, by what ``config`` says of their pools."""
    present = {pool.name: pool.endpoints for pool in declared.pools}
    for pool in config.pools:
        told = pool.kv_events
        if told is None:
            continue
        listed = {endpoint.address: endpoint for endpoint in pool.endpoints}
        for address in (endpoint.address for endpoint in present.get(pool.name, ())):
            own = listed.get(address)
            port, replay = told.port, told.replay_port
            if own is not None:
                port, replay = own.kv_events_port or port, own.kv_events_replay_port or replay
            ip, _ = addresses.split(address)
            yield KvSource(
                address,
                f"tcp://{addresses.joined(ip, port)}",
                f"tcp://{addresses.joined(ip, replay)}" if replay else "",
                told.topic,
                told.block_size,
            )


def described(standings: Mapping[str, KvStanding]) -> Sequence[JsonObject]:
    """Return what the status page says of it."""
    return [
        {
            "address": address,
            "connected": standing.connected,
            "batches": standing.batches,
            "missed": standing.missed,
            "unreadable": standing.unreadable,
        }
        for address, standing in standings.items()
    ]
