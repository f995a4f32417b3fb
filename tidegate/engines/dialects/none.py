"""No metrics at all: an endpoint that accepts a connection is there, and what it holds is what we sent it."""

from tidegate.engines.dialect import Dialect

DIALECT = Dialect(metrics_path=None)
