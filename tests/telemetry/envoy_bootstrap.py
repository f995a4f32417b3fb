"""A static Envoy configuration with everything between a request and its access-log entry."""

from typing import Any

TYPES = "type.googleapis.com/envoy.extensions"


def cluster(name: str, ports: list[int], **extra: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "0.5s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [_endpoint(port) for port in ports]}]},
        **extra,
    }


def _endpoint(port: int) -> dict[str, Any]:
    return {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}


HTTP2 = {
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": f"{TYPES}.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
}
OVERRIDE_HOST = {
    "load_balancing_policy": {
        "policies": [
            {
                "typed_extension_config": {
                    "name": "envoy.load_balancing_policies.override_host",
                    "typed_config": {
                        "@type": f"{TYPES}.load_balancing_policies.override_host.v3.OverrideHost",
                        "override_host_sources": [
                            {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}
                        ],
                        "fallback_policy": {
                            "policies": [
                                {
                                    "typed_extension_config": {
                                        "name": "envoy.load_balancing_policies.round_robin",
                                        "typed_config": {
                                            "@type": f"{TYPES}.load_balancing_policies.round_robin.v3.RoundRobin"
                                        },
                                    }
                                }
                            ]
                        },
                    },
                }
            }
        ]
    }
}
EXT_PROC = {
    "name": "envoy.filters.http.ext_proc",
    "typed_config": {
        "@type": f"{TYPES}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "control"}},
        "message_timeout": "2s",
        "processing_mode": {
            "request_header_mode": "SEND",
            "response_header_mode": "SKIP",
            "request_trailer_mode": "SKIP",
            "response_trailer_mode": "SKIP",
        },
        "metadata_options": {"receiving_namespaces": {"untyped": ["envoy.lb", "tidegate"]}},
    },
}
USAGE_FILTER = {
    "name": "envoy.filters.http.ai_protocol_manager",
    "typed_config": {
        "@type": f"{TYPES}.filters.http.ai_protocol_manager.v3.AiProtocolManager",
        "response_handling": {
            "token_usage": {
                "include_unconfigured_routes": True,
                "default_llm_protocol": "OPENAI_CHAT_COMPLETIONS",
                "metadata_namespace": "ai_usage",
            }
        },
    },
}
ROUTER = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"},
}
ROUTES = [
    {"match": {"path": "/direct"}, "direct_response": {"status": 503}},
    {"match": {"path": "/nowhere"}, "route": {"cluster": "absent"}},
    {"match": {"path": "/nobody"}, "route": {"cluster": "empty"}},
    {
        "match": {"prefix": "/"},
        "route": {
            "cluster": "default",
            "timeout": "0s",
            "retry_policy": {"retry_on": "connect-failure,gateway-error", "num_retries": 1},
        },
    },
]
ACCESS_LOG = {
    "name": "envoy.access_loggers.http_grpc",
    "typed_config": {
        "@type": f"{TYPES}.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
        "common_config": {
            "log_name": "tidegate",
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "control"}},
            "buffer_flush_interval": "0.02s",
            "custom_tags": [
                {"tag": "ttft_us", "value": "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%"},
                {"tag": "upstream_ttft_us", "value": "%COMMON_DURATION(US_TX_END:US_RX_BODY_BEG:us)%"},
            ],
        },
    },
}


def bootstrap(listen: int, control: int, engines: list[int]) -> dict[str, Any]:
    connections = {
        "stat_prefix": "ingress",
        "http_filters": [EXT_PROC, USAGE_FILTER, ROUTER],
        "access_log": [ACCESS_LOG],
        "access_log_options": {"access_log_flush_interval": "1s"},
        "route_config": {
            "validate_clusters": False,
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": ROUTES}],
        },
    }
    kind = f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"
    filters = [
        {
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {"@type": kind, **connections},
        }
    ]
    return {
        "static_resources": {
            "listeners": [
                {
                    "name": "ingress",
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": listen}},
                    "filter_chains": [{"filters": filters}],
                }
            ],
            "clusters": [
                cluster("control", [control], **HTTP2),
                cluster("default", engines, **OVERRIDE_HOST),
                cluster("empty", []),
            ],
        }
    }
