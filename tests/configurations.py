"""A configuration that says everything, ways to spoil it, and what is then said about it."""

import copy
import re
from typing import Any

import pytest
import yaml

from tidegate.config import Config, ConfigError, parse

EXAMPLE = b"""
listener: {port: 8080}
admin: {port: 9090}
pools:
  - name: default
    engine: vllm                 # metrics dialect; also: sglang, tgi, trtllm, llamacpp, none
    models: ["*"]
    policy: least_tokens         # also here: round_robin, random, least_request, weighted
    endpoints:
      - {address: "127.0.0.1:8001"}
      - {address: "127.0.0.1:8002", weight: 2}
"""

EVERY_LIMIT: dict[str, float] = {
    "requests_per_minute": 1,
    "input_tokens_per_minute": 2,
    "output_tokens_per_minute": 3,
    "tokens_per_minute": 4,
    "requests_per_day": 5,
    "input_tokens_per_day": 6,
    "output_tokens_per_day": 7,
    "tokens_per_day": 8,
    "requests_in_flight": 9,
    "tokens_in_flight": 10,
    "burst": 0.5,
}
NO_LIMIT = dict.fromkeys(EVERY_LIMIT)

EVERY_KEY: dict[str, Any] = {
    "listener": {
        "address": "0.0.0.0",
        "port": 80,
        "max_requests_per_second": 1000,
        "tls": None,
        "filters": [],
    },
    "admin": {"address": "127.0.0.1", "port": 9091},
    "control": {
        "address": "0.0.0.0",
        "advertise": "10.0.0.2",
        "xds_port": 1,
        "ext_proc_port": 2,
        "ext_proc_transport": "h2",
        "ext_proc_exchanges": 2,
        "tls": None,
        "workers": 1,
        "state_dir": "/var/lib/tidegate",
    },
    "envoy": {"admin_address": "127.0.0.2", "admin_port": 3, "concurrency": 8, "group": "edge"},
    "envoys": {
        "groups": [
            {
                "name": "edge",
                "match": {"id": "edge-*", "cluster": "edge", "metadata": {"role": "edge"}},
                "listener": None,
                "pools": ["llama"],
            }
        ],
        "others": "refuse",
    },
    "limits": {
        "max_body_bytes": 1_000_000,
        "compressed_bodies": "refuse",
        "decision_timeout_seconds": 2,
        "absence_seconds": 1.5,
        "idle_timeout_seconds": 60.5,
        "lease_seconds": 30,
        "quarantine_seconds": 60,
    },
    "scrape": {"interval_seconds": 0.5, "timeout_seconds": 1, "max_bytes": 100_000},
    "unknown_paths": {"pool": "llama"},
    "health": {
        "hold_seconds": 2,
        "max_hold_seconds": 60,
        "calm_seconds": 1,
        "forgive_seconds": 30,
        "warm_up_seconds": 10,
        "least_share": 0.2,
        "degraded_share": 0.4,
        "max_ejected": 0.3,
        "max_ejected_by_agents": 0.2,
        "panic": 0.6,
    },
    "session": {"header": "x-chat", "cookie": "sid", "body_field": "metadata.user_id"},
    "picker": {"health_port": 4, "max_held_bytes": 10_000_000, "drain_seconds": 5, "test_header": "obey"},
    "agents": {"address": "10.0.0.2", "port": 18101, "tls": None, "insecure": True, "max_nodes": 50},
    "decision_log": {"file": "/var/lib/tidegate/decisions.jsonl", "sample": 0.5, "max_bytes": 2_000_000},
    "authentication": {
        "anonymous": None,
        "identity_header": None,
        "jwt": None,
        "certificate": None,
        "metadata": None,
        "salt_prefixes": False,
    },
    "tiers": [],
    "tenants": [],
    "keys": [],
    "objectives": [{"name": "batch", "priority": -10}],
    "redis": {
        "url": "redis://10.0.0.5:6380/1",
        "username": "tidegate",
        "password_file": None,
        "password_env": "REDIS_PASSWORD",
        "ca": None,
        "certificate": None,
        "key": None,
        "prefix": "fleet-1",
        "salt_file": None,
        "timeout_seconds": 0.05,
        "replicas": 3,
        "inflight_seconds": 0.5,
    },
    "pools": [
        {
            "name": "llama",
            "engine": "sglang",
            "models": ["llama-*", "meta/*"],
            "adapters": ["sql-*"],
            "policy": "weighted_scores",
            "filters": ["reachable", "saturation"],
            "scorers": [{"name": "queue", "weight": 0.5}, {"name": "running", "weight": 1.0}],
            "lanes": [{"above_tokens": 30_000, "share": 0.25}],
            "destinations": 2,
            "retries": 0,
            "idle_timeout_seconds": 20,
            "mirror": None,
            "fail_open": True,
            "timeout_seconds": 600.0,
            "tokenizer": None,
            "kv_events": {"port": 6000, "replay_port": 6001, "topic": "kv@", "block_size": 32},
            "vram": {"judged": "headroom", "kv_bytes_per_token": 70_272},
            "usage": "stream",
            "inject_usage": False,
            "objective": {"ttft_seconds": 2.5, "waiting": 8.0},
            "queue": {
                "enabled": True,
                "max_requests": 10,
                "max_tokens": 20_000,
                "max_bytes": 100_000,
                "max_requests_per_tenant": 5,
                "max_tokens_per_tenant": 10_000,
                "max_wait_seconds": 20.0,
                "batch_max_wait_seconds": 200.0,
                "batch_share": 0.5,
                "kept_share": 0.25,
                "ageing_seconds": 5.0,
                "max_running": 64,
            },
            "breaker": {
                "enabled": False,
                "consecutive": 3,
                "share": 0.25,
                "volume": 50,
                "window_seconds": 10.0,
                "open_seconds": 1.0,
                "max_open_seconds": 60.0,
                "successes": 1,
            },
            "checks": [
                {
                    "name": "http",
                    "interval_seconds": 1.0,
                    "timeout_seconds": 2.0,
                    "fall": 4,
                    "rise": 1,
                    "path": "/ready",
                    "status": 204,
                    "model": None,
                    "still_seconds": 20.0,
                }
            ],
            "readiness": {"check": "metrics", "timeout_seconds": 20.0},
            "health": None,
            "endpoints": [
                {
                    "address": "[fd00::1]:8000",
                    "weight": 10,
                    "role": "decode",
                    "models": ["llama-3"],
                    "max_running": 256,
                    "gpu": "h100",
                    "node": "gpu-7.internal",
                    "gpus": ["GPU-5a1c", "MIG-77"],
                    "drain": True,
                    "kv_events_port": 6002,
                    "kv_events_replay_port": 6003,
                }
            ],
            "discovery": None,
            "tls": None,
        },
        {"name": "rest", "engine": "none", "endpoints": [{"address": "10.0.0.3:1"}]},
    ],
    "routes": [
        {
            "name": "gold",
            "path": "/api/v1/chat",
            "api": "chat_completions",
            "headers": [{"name": "x-tier", "exact": "gold", "prefix": None, "present": None}],
            "model": "chat-*",
            "min_prompt_tokens": 8000,
            "max_prompt_tokens": 100_000,
            "pool": "llama",
            "split": [],
            "sticky": None,
            "rollout": None,
            "rewrite_model": "llama-3",
            "rewrite_path": "/v1/chat/completions",
            "timeout_seconds": 60,
            "idle_timeout_seconds": 10,
            "retries": 1,
        },
    ],
}


EVERY_KEY_OF_A_SPLIT: dict[str, Any] = {
    "model": "shared",
    "split": [
        {"pool": "llama", "weight": 90, "rewrite_model": "llama-3"},
        {"pool": "rest", "weight": 10, "rewrite_model": None},
    ],
    "sticky": {"by": None, "header": "x-user"},
    "rollout": {
        "canary": "rest",
        "steps": [5, 50],
        "pause_seconds": 60,
        "min_requests": 100,
        "max_error_percent": 1,
        "max_ttft_ratio": 1.5,
        "max_tpot_ratio": 1.5,
    },
}


EVERY_KEY_OF_TENANTS: dict[str, Any] = {
    "listener": {
        "address": "0.0.0.0",
        "port": 80,
        "max_requests_per_second": None,
        "tls": {
            "certificate": "/e/c.pem",
            "key": "/e/k.pem",
            "client_ca": "/e/ca.pem",
            "client_certificate": "optional",
            "read_by": "envoy",
        },
        "filters": [
            {
                "name": "who",
                "type": "envoy.extensions.filters.http.lua.v3.Lua",
                "config": {},
            }
        ],
    },
    "authentication": {
        "anonymous": "guest",
        "identity_header": "x-tenant-id",
        "jwt": {
            "issuer": "https://issuer.example",
            "audiences": ["tidegate"],
            "jwks_file": None,
            "jwks_uri": "https://issuer.example/keys",
            "jwks_ca": "/e/roots.pem",
            "claim": "tenant",
        },
        "certificate": "uri_san",
        "metadata": {"namespace": "envoy.filters.http.ext_authz", "path": ["who", "tenant"]},
        "salt_prefixes": True,
    },
    "tiers": [
        {
            "name": "gold",
            "priority": 10,
            "weight": 2.0,
            "reserve": "expected",
            "limits": {**EVERY_LIMIT},
            "models": [{"model": "llama-*", "limits": {**EVERY_LIMIT}}],
        }
    ],
    "tenants": [
        {
            "name": "acme",
            "tier": "gold",
            "identities": ["spiffe://acme/ci"],
            "limits": {**EVERY_LIMIT},
            "models": [{"model": "*", "limits": {**EVERY_LIMIT}}],
        },
        {"name": "guest", "tier": None, "identities": [], "limits": {**NO_LIMIT}, "models": []},
    ],
    "keys": [{"name": "acme-ci", "tenant": "acme", "hash": f"sha256:{'0a' * 32}", "limits": {**EVERY_LIMIT}}],
}


def parsed(data: Any) -> Config:
    """Return the configuration that ``data`` says."""
    return parse(yaml.safe_dump(data).encode(), "tidegate.yaml")


def faults(data: Any) -> list[str]:
    """Return the lines said about ``data``, or about a text, without the file's name."""
    text = data if isinstance(data, bytes) else yaml.safe_dump(data).encode()
    with pytest.raises(ConfigError) as caught:
        parse(text, "tidegate.yaml")
    lines = str(caught.value).split("\n")
    assert all(line.startswith("tidegate.yaml:") for line in lines)
    assert not re.search(
        r"Traceback|NoneType|pydantic|\b(dict|tuple|str|int|bool|None|True|False)\b", str(caught.value)
    )
    return [line.removeprefix("tidegate.yaml:").strip() for line in lines]


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return ``EVERY_KEY`` with ``value`` at ``path``, such as ``pools.0.name``."""
    data = copy.deepcopy(EVERY_KEY)
    *parents, last = path.split(".")
    at: Any = data
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = value
    return data
