"""What `scontrol update` changes of where a job's nodes lie."""

from __future__ import annotations

from ctld.core.model import Placement
from muster.api import UpdateJobRequest
from muster.placement import parse_segment, parse_switches, parse_topology


def placement_of(request: UpdateJobRequest) -> Placement | None:
    """Give what an update changes of where a job's nodes lie; None: nothing.

    Raises:
        InvalidInput: a text that cannot be read.
    """
    switches = wait = segment = level = None
    if request.switches is not None:
        switches, wait = parse_switches(request.switches) if request.switches not in ("", "0") else (0, -1)
    if request.segment is not None:
        segment, level = parse_segment(request.segment) if request.segment not in ("", "0") else (0, "")
    found = Placement(
        prefer=None if request.prefer is None else request.prefer.strip(),
        topology=None if request.topology is None else topology_text(request.topology),
        switches=switches,
        switches_wait_seconds=wait,
        segment=segment,
        segment_level=level,
        contiguous=request.contiguous,
    )
    return found if found != Placement() else None


def topology_text(text: str | None) -> str:
    """Bring --topology to one form: equal wishes are equal texts.

    Raises:
        InvalidInput: it cannot be read.
    """
    return ":".join(filter(None, parse_topology(text))) if text else ""
