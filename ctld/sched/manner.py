"""How a job's nodes are to be chosen among those that fit: by which topology, and by what settings and request ask."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ctld.core.cluster import PartitionSpec, Settings
from ctld.core.model import Request
from ctld.core.topology import wish_of
from ctld.sched.fleet import Fleet
from ctld.sched.needs import Impossible
from ctld.sched.topology import Layout, layout_of
from muster.errors import InvalidInput
from muster.states import Reason
from muster.topology_levels import level_number


@dataclass(frozen=True, slots=True)
class Manner:
    """The rules of choice for one demand."""

    layout: Layout | None = None
    """None: nodes are not tied to any topology."""
    mode: str = ""
    """required | preferred | unconstrained; empty: as the topology's own rule is."""
    level: int = 0
    """Of `mode`."""
    switches: int = 0
    """Most leaves that the nodes may span; 0: any number."""
    switch_wait: int = 0
    """Seconds since it became eligible for which a job is held to `switches`."""
    segment: int = 0
    segment_level: int = -1
    """-1: as high as a segment needs."""
    spread_segments: bool = False
    consolidate_segments: bool = False
    contiguous: bool = False
    spread: bool = False
    """As many nodes as possible."""
    fewest: bool = False
    """Of a range of node counts the smallest."""
    lln: bool = False
    """Least loaded nodes first."""
    last: bool = False
    """A job of one CPU goes to the last usable node."""
    pack: tuple[tuple[str, float], ...] = ()
    """Weights of the packing score by TRES (cpu, mem, gres/gpu)."""

    @property
    def tightest(self) -> bool:
        """A job of one node goes where it fits best."""
        return not (self.lln or self.last or self.pack)

    @property
    def sticky(self) -> bool:
        """The node that was chosen for one job of one node stays the best for the next equal one, while it fits."""
        return not self.lln

    @property
    def by_switch(self) -> bool:
        """Several nodes are chosen by where they are alone, and not by what is free on them."""
        return self.layout is not None and not (self.contiguous or self.spread or self.lln)

    @property
    def plain(self) -> bool:
        """Several nodes need nothing but to be near each other in the node table."""
        return self.layout is None and not (self.contiguous or self.spread or self.lln or self.pack)


PLAIN = Manner()


def manner_of(fleet: Fleet, settings: Settings, partition: PartitionSpec, request: Request) -> Manner:
    """Give the manner in which nodes of a partition are chosen for a request.

    Raises:
        Impossible: it asks for what the topology does not have.
    """
    layout = layout_of(fleet, settings, partition)
    level, segment_level = 0, -1
    mode = ""
    try:
        wish = wish_of(partition, request)
        mode = wish.mode
        if wish.level:
            level = level_number(layout.spec, wish.level) if layout is not None else 0
        if request.segment_level and layout is not None:
            segment_level = level_number(layout.spec, request.segment_level)
    except InvalidInput as error:
        raise Impossible(Reason.BAD_CONSTRAINTS, str(error)) from None
    if segment_level >= 0 and request.nodes_min <= request.segment and (mode != "required" or level > segment_level):
        mode, level = "required", segment_level  # The job is one segment, and lies where that has to.
    if wish.mode == "required" and layout is None:
        raise Impossible(Reason.BAD_CONSTRAINTS, f"partition {partition.name} has no topology")
    asked = request.switches or request.topology or request.segment
    if layout is not None and settings.topology_optional and layout.spec.kind == "tree" and not asked:
        layout = None
    wait = settings.max_switch_wait_seconds
    if request.switches_wait_seconds >= 0:
        wait = min(wait, request.switches_wait_seconds)
    one_cpu = request.ntasks <= 1 and request.cpus_per_task == 1 and request.nodes_min == 1 == request.nodes_max
    return Manner(
        layout=layout,
        mode=mode,
        level=level,
        switches=request.switches if layout is not None else 0,
        switch_wait=wait,
        segment=request.segment if layout is not None else 0,
        segment_level=segment_level,
        spread_segments=request.spread_segments,
        consolidate_segments=request.consolidate_segments,
        contiguous=request.contiguous,
        spread=request.spread_job,
        fewest=request.use_min_nodes,
        lln=settings.lln or partition.lln,
        last=settings.pack_serial_at_end and one_cpu and not _gpus(request) and request.min_cpus <= 1,
        pack=settings.pack_weights,
    )


def unbound(manner: Manner) -> Manner:
    """Give the manner without what a job would wait for: a level that it requires, or few switches."""
    return replace(manner, switches=0, mode="" if manner.mode == "required" else manner.mode)


def _gpus(request: Request) -> bool:
    return bool(request.gpus or request.gpus_per_node or request.gpus_per_task or request.ntasks_per_gpu)
