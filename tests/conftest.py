"""What holds for all tests."""

import os

from hypothesis import settings

# gRPC would stop its threads around every fork, which the tests of child processes do while servers of other tests are
# being torn down: the child then ended with an error of gRPC. No program of ours forks and goes on with gRPC.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
