"""A new configuration: what runs on nodes that vanish ends first, then the records move to the new table."""

from __future__ import annotations

from ctld.core.commands import ApplyConfig
from ctld.core.decide.ending import end_by_node_failure, other_nodes
from ctld.core.events import ConfigApplied, Event, NodesReleased
from ctld.core.state import State
from muster.ids import JobId, UnixTime
from muster.states import JobState


def apply_config(state: State, command: ApplyConfig, at: UnixTime) -> list[Event]:
    """Take the configuration; nothing when it is the one in force.

    Weights and features that `scontrol update` changed go back to what is configured.
    """
    unchanged = (
        state.settings == command.settings
        and tuple(node.spec for node in state.nodes) == command.nodes
        and tuple(state.partitions.values()) == command.partitions
    )
    if unchanged:
        return []
    kept = {spec.name for spec in command.nodes}
    gone = {node.index for node in state.nodes if node.spec.name not in kept}
    # The events before the last one still count nodes as the state does now.
    return [
        *_end_what_was_there(state, gone, at),
        ConfigApplied(at=at, settings=command.settings, nodes=command.nodes, partitions=command.partitions),
    ]


def _end_what_was_there(state: State, gone: set[int], at: UnixTime) -> list[Event]:
    events: list[Event] = []
    touched = sorted({job_id for node in gone for job_id in state.node_jobs[node]})
    for job_id in touched:
        job = state.jobs[job_id]
        if JobState.PENDING < job.state <= JobState.SUSPENDED and job.alloc is not None:
            lost = next(share.node for share in job.alloc.shares if share.node in gone)
            name = state.nodes[lost].spec.name
            events.append(end_by_node_failure(state, job, at, name, completing=other_nodes(job, *gone)))
        else:
            nodes = tuple(node for node in job.completing if node in gone)
            events.append(NodesReleased(at=at, job_id=JobId(job_id), nodes=nodes))
    return events
