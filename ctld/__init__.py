"""Package ctld of Muster."""

import os

# numpy's linear algebra starts a thread for each CPU when it is loaded. Nothing here uses them, and their start costs
# as much CPU time as the rest of the import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
