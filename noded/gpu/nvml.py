"""GPUs as NVIDIA's management library lists them: by PCI bus id ascending, which is the order of device indexes.

The library is loaded only when asked for. A machine without the driver has no GPUs: that is said once in the log and
is no error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

log = logging.getLogger("noded.gpu")


class NvmlGpus:
    """What was found at the start."""

    def __init__(self, types: Sequence[str]) -> None:
        self._types = tuple(types)

    def types(self) -> Sequence[str]:
        """Give the type of each."""
        return self._types


def detect() -> NvmlGpus:
    """Ask the driver; takes up to a few seconds on a machine whose driver sleeps (call it in a thread)."""
    try:
        import pynvml
    except ImportError:
        log.info("no GPUs: the package nvidia-ml-py is not installed")
        return NvmlGpus(())
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.info("no GPUs: %s", error)
        return NvmlGpus(())
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append((pynvml.nvmlDeviceGetPciInfo(handle).busId, pynvml.nvmlDeviceGetName(handle)))
        types = [type_name(_text(name)) for _, name in sorted(found)]
    except pynvml.NVMLError as error:
        log.error("no GPUs are used: the driver cannot list them: %s", error)
        return NvmlGpus(())
    finally:
        pynvml.nvmlShutdown()
    log.info("%d GPUs: %s", len(types), ", ".join(types) or "none")
    return NvmlGpus(types)


def type_name(product: str) -> str:
    """Give the type for a product's name as Slurm does: `NVIDIA H200` is nvidia_h200."""
    word = product.strip().lower().replace(" ", "_")
    return word if word.startswith("nvidia_") else f"nvidia_{word}"


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
