"""What is loaded with ctld starts no threads of its own."""

from __future__ import annotations

import subprocess
import sys


def test_loading_the_scheduler_starts_no_threads() -> None:
    code = "import os, ctld.sched.cycle, ctld.sched.search; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
