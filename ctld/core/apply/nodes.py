"""Events of nodes and of the configuration."""

from __future__ import annotations

from msgspec import structs

from ctld.core.apply.indexes import rebuild
from ctld.core.apply.reservations import follow_nodes
from ctld.core.cluster import Node, NodeSpec
from ctld.core.events import ConfigApplied, NodeChanged, NodeRegistered
from ctld.core.model import Allocation, Job, NodeShare, Step
from ctld.core.state import State
from muster.ids import JobId, UnixTime


def config_applied(state: State, event: ConfigApplied) -> None:
    """Take nodes, partitions and settings; where indexes moved, every record that names nodes follows."""
    state.usage.settle(state.at)
    before = {node.spec.name: node for node in state.nodes}
    moved = {before[spec.name].index: index for index, spec in enumerate(event.nodes) if spec.name in before}
    state.nodes = [_configured(before.get(spec.name), index, spec, event.at) for index, spec in enumerate(event.nodes)]
    state.partitions = {partition.name: partition for partition in event.partitions}
    state.settings = event.settings
    if not state.jobs and state.next_job_id < event.settings.first_job_id:
        state.next_job_id = JobId(event.settings.first_job_id)
    if len(moved) < len(before) or any(old != new for old, new in moved.items()):
        for job in list(state.jobs.values()):
            if job.booking is not None:
                job = structs.replace(job, booking=None)
                state.jobs[job.id] = job
            if job.alloc is not None:
                state.jobs[job.id] = _moved_job(job, moved)
        for steps in state.steps.values():
            for step in list(steps.values()):
                steps[step.step_id] = _moved_step(step, moved)
    if state.reservations:
        follow_nodes(state, moved)
    rebuild(state)


def _configured(node: Node | None, index: int, spec: NodeSpec, at: UnixTime) -> Node:
    if node is not None:
        return structs.replace(node, index=index, spec=spec)
    down, drain, fail = spec.state == "DOWN", spec.state.startswith("DRAIN"), spec.state.startswith("FAIL")
    reason = spec.reason if down or drain or fail else ""
    return Node(
        index=index,
        spec=spec,
        down=down,
        drain=drain,
        fail=fail,
        reason=reason,
        reason_at=at if reason else UnixTime(0),
    )


def _moved_shares(shares: tuple[NodeShare, ...], moved: dict[int, int]) -> tuple[NodeShare, ...]:
    # Nodes that are gone fall out: what ran there was ended before.
    kept = [structs.replace(share, node=moved[share.node]) for share in shares if share.node in moved]
    return tuple(sorted(kept, key=lambda share: share.node))


def _moved_job(job: Job, moved: dict[int, int]) -> Job:
    assert job.alloc is not None, "only jobs with nodes are moved"
    alloc = Allocation(
        partition=job.alloc.partition,
        shares=_moved_shares(job.alloc.shares, moved),
        planned_by=job.alloc.planned_by,
    )
    completing = tuple(sorted(moved[node] for node in job.completing if node in moved))
    return structs.replace(job, alloc=alloc, completing=completing)


def _moved_step(step: Step, moved: dict[int, int]) -> Step:
    order = sorted((moved[share.node], place) for place, share in enumerate(step.shares) if share.node in moved)
    return structs.replace(
        step,
        shares=tuple(structs.replace(step.shares[place], node=node) for node, place in order),
        ranks=tuple(step.ranks[place] for _, place in order) if step.ranks else (),
        results=tuple(
            structs.replace(result, node=moved[result.node]) for result in step.results if result.node in moved
        ),
    )


def registered(state: State, event: NodeRegistered) -> None:
    """Keep what the node said, and the state that follows from it."""
    node = state.nodes[event.node]
    new = structs.replace(node, facts=event.facts, down=event.down, drain=event.drain, invalid=event.invalid)
    state.nodes[event.node] = _with_reason(node, new, event.reason, event.reason_uid, event.at)
    state.free.version += 1


def changed(state: State, event: NodeChanged) -> None:
    """Set the administrative state, reason, weight and features."""
    node = state.nodes[event.node]
    spec = node.spec
    if event.weight is not None:
        spec = structs.replace(spec, weight=event.weight)
    if event.features is not None:
        state.fitting.clear()
        spec = structs.replace(spec, features=event.features)
    new = structs.replace(node, spec=spec, down=event.down, drain=event.drain, fail=event.fail)
    state.nodes[event.node] = _with_reason(node, new, event.reason, event.reason_uid, event.at)
    # Whether a node may be used counts as a change of what is free: a scheduler that saw this version looks
    # again.
    state.free.version += 1


def _with_reason(old: Node, new: Node, reason: str, uid: int, at: UnixTime) -> Node:
    """Set the reason; a new text for an unchanged state keeps the time at which that state began."""
    if not reason:
        return structs.replace(new, reason="", reason_uid=0, reason_at=UnixTime(0))
    same = (old.down, old.drain, old.fail, old.invalid) == (new.down, new.drain, new.fail, new.invalid)
    if same and old.reason:
        at = old.reason_at
    return structs.replace(new, reason=reason, reason_uid=uid, reason_at=at)
