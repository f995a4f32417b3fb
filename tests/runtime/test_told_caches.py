"""Where engines are listened to."""

from tests.configurations import parsed
from tidegate.engines.kv_source import KvSource, KvStanding
from tidegate.runtime.told_caches import described, sources


def test_each_engine_of_a_pool_with_kv_events_is_listened_to_at_its_own_address() -> None:
    config = parsed(
        {
            "pools": [
                {
                    "name": "told",
                    "models": ["m"],
                    "kv_events": {"port": 6000, "replay_port": 6001, "topic": "kv@", "block_size": 32},
                    "endpoints": [
                        {"address": "10.0.0.1:8000"},
                        {"address": "[fd00::1]:8000", "kv_events_port": 7000, "kv_events_replay_port": 7001},
                    ],
                },
                {"name": "bare", "models": ["b"], "kv_events": {}, "endpoints": [{"address": "10.0.0.2:8000"}]},
                {"name": "silent", "models": ["s"], "endpoints": [{"address": "10.0.0.3:8000"}]},
            ]
        }
    )
    assert list(sources(config)) == [
        KvSource("10.0.0.1:8000", "tcp://10.0.0.1:6000", "tcp://10.0.0.1:6001", "kv@", 32),
        KvSource("[fd00::1]:8000", "tcp://[fd00::1]:7000", "tcp://[fd00::1]:7001", "kv@", 32),
        KvSource("10.0.0.2:8000", "tcp://10.0.0.2:5557", "", "", 16),
    ]


def test_the_status_says_how_it_stands_with_each() -> None:
    assert described({"10.0.0.1:8000": KvStanding(connected=True, batches=3, missed=1, unreadable=2)}) == [
        {"address": "10.0.0.1:8000", "connected": True, "batches": 3, "missed": 1, "unreadable": 2}
    ]
