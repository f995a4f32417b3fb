"""The GPU agent: what NVML and the engine beside it say, judged, and sent to the control plane.

It runs alone on each GPU host and knows nothing of the control plane but ``protos/gpu_health.proto``.
"""
