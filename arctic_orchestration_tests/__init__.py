"""The tests of arctic_orchestration."""

import os

# gRPC's handlers of forks end processes now and then while a thread uses a channel, and tests fork
# all the time. It reads this when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
