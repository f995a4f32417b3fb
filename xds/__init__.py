"""Envoy's configuration, served over the aggregated discovery service."""
