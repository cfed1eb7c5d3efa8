"""The tests of arctic_orchestration."""

import os
import signal
import threading

# gRPC's handlers of forks end processes now and then while a thread uses a channel, and tests fork
# all the time. It reads this when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell without job control starts what runs in its background with SIGINT ignored. Dagster's
# processes would inherit that, and give SIGTERM the same meaning: none could be ended.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
