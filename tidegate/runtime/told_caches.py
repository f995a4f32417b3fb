"""Engines that tell what they cache: where each is listened to, and how that goes."""

from collections.abc import Iterator, Mapping, Sequence

from tidegate import addresses
from tidegate.config import Config
from tidegate.engines.kv_source import KvSource, KvStanding
from tidegate.telemetry.status import JsonObject


def sources(config: Config) -> Iterator[KvSource]:
    """Return where the engines of ``config`` publish KV events."""
    for pool in config.pools:
        told = pool.kv_events
        if told is None:
            continue
        for endpoint in pool.endpoints:
            ip, _ = addresses.split(endpoint.address)
            replay = endpoint.kv_events_replay_port or told.replay_port
            yield KvSource(
                endpoint.address,
                f"tcp://{addresses.joined(ip, endpoint.kv_events_port or told.port)}",
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
