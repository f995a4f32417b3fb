"""The request path: Envoy's external-processing protocol, answered with a decision."""
