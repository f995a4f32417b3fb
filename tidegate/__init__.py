"""An Envoy control plane for LLM inference fleets."""
