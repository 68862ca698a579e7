"""What holds for all tests: settings that must be made before anything is imported or drawn."""

from __future__ import annotations

import os

from hypothesis import settings

# Tests fork supervisors of steps from a process that has gRPC loaded; its fork handlers write to stderr, where the
# tests look for what tasks wrote. (The zygote of a real agent has no gRPC.)
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# The machines are shared and slow at times: an example that takes long is no fault.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
