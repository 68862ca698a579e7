"""Nodes: registration and its checks, silence, and what administrators change."""

from __future__ import annotations

from msgspec import structs

from ctld.core.cluster import Node, NodeFacts, NodeSpec
from ctld.core.commands import LoseNodes, RegisterNode, UpdateNode
from ctld.core.decide.ending import end_by_node_failure, other_nodes
from ctld.core.decide.finish import completing_run
from ctld.core.events import Event, NodeChanged, NodeRegistered, NodesReleased
from ctld.core.state import State
from muster.errors import Denied, InvalidInput, NotFound, Refused
from muster.ids import JobId, UnixTime
from muster.slurm_errors import slurm_text
from muster.states import JobState

REBOOTED = "Node unexpectedly rebooted"
NOT_RESPONDING = "Not responding"
NO_REASON = "You must specify a reason when DOWNING or DRAINING a node. Request denied"
BAD_TRANSITION = "Invalid node state transition"
_BOOT_SLACK_SECONDS = 5
"""Agents compute their boot time as now minus up-time, which jitters."""
_UNSUPPORTED = (
    "NORESP",
    "FUTURE",
    "POWER_UP",
    "POWER_DOWN",
    "POWER_DOWN_ASAP",
    "POWER_DOWN_FORCE",
    "CANCEL_REBOOT",
)


# ---- registration ----------------------------------------------------------------------------------------------


def register_node(state: State, command: RegisterNode, at: UnixTime) -> list[Event]:
    """Take a node's word: check it against the configuration, end what a reboot took, free what is clean.

    Raises:
        NotFound: the name is not in the configuration.
    """
    index = state.node_index.get(command.name)
    if index is None:
        raise NotFound(
            slurm_text(2018), f"no NodeName= line of the configuration names {command.name}", slurm_code=2018
        )
    node = state.nodes[index]
    booted = _booted_since(node, command.facts)
    lost = _lost_runs(state, index, command, booted)
    events: list[Event] = []
    new = _judged(state, node, command.facts, rebooted_under_jobs=booted and bool(lost))
    if new != node:
        events.append(
            NodeRegistered(
                at=at,
                node=index,
                facts=command.facts,
                down=new.down,
                drain=new.drain,
                invalid=new.invalid,
                reason=new.reason,
                reason_uid=new.reason_uid,
            )
        )
    for job_id in lost:
        job = state.jobs[job_id]
        events.append(end_by_node_failure(state, job, at, node.spec.name, completing=other_nodes(job, index)))
    for job_id in state.node_jobs[index]:
        job = state.jobs[job_id]
        if index in job.completing and (job_id, completing_run(job)) not in command.runs:
            events.append(NodesReleased(at=at, job_id=JobId(job_id), nodes=(index,)))
    return events


def shortcomings(spec: NodeSpec, facts: NodeFacts) -> str:
    """Say what a node has less of than is configured, in Slurm's words; empty when it has enough."""
    found: list[str] = []
    if facts.sockets * facts.cores_per_socket * facts.threads_per_core < (
        spec.sockets * spec.cores_per_socket * spec.threads_per_core
    ):
        found.append("Low socket*core*thread count")
    if facts.cpus < spec.cpus:
        found.append("Low CPUs")
    if facts.memory_mib < spec.memory_mib:
        found.append(f"Low RealMemory (reported:{facts.memory_mib} < 100.00% of configured:{spec.memory_mib})")
    if facts.tmp_mib < spec.tmp_mib:
        found.append("Low TmpDisk")
    if len(facts.gpus) < len(spec.gpus):
        found.append(f"gres/gpu count reported lower than configured ({len(facts.gpus)} < {len(spec.gpus)})")
    return ", ".join(found)


def _booted_since(node: Node, facts: NodeFacts) -> bool:
    before = node.facts
    if before is None:
        return False
    if before.boot_id and facts.boot_id:
        return facts.boot_id != before.boot_id
    return facts.boot_at > before.boot_at + _BOOT_SLACK_SECONDS


def _lost_runs(state: State, index: int, command: RegisterNode, booted: bool) -> list[int]:
    """Running jobs that the node lost by booting; others that it does not know are launched again.

    Only boot times of the node itself are compared: its clock and the controller's may differ by more than a boot
    takes. Nothing survives a boot but what the disk tells of a script that had ended before.
    """
    if not booted:
        return []
    return [
        job_id
        for job_id in state.node_jobs[index]
        if JobState.PENDING < state.jobs[job_id].state <= JobState.SUSPENDED
        and (job_id, state.jobs[job_id].restarts) not in command.ended_runs
    ]


def _judged(state: State, node: Node, facts: NodeFacts, *, rebooted_under_jobs: bool) -> Node:
    """Give the node as it stands after its registration."""
    wrong = shortcomings(node.spec, facts)
    if wrong:
        new = structs.replace(node, facts=facts, invalid=True)
        if not (node.down or node.drain or node.fail):
            new = structs.replace(new, drain=True, reason=wrong, reason_uid=0)
        return new
    new = structs.replace(node, facts=facts, invalid=False)
    service = state.settings.return_to_service
    comes_back = service == 2 or (service == 1 and node.reason == NOT_RESPONDING and not _booted_since(node, facts))
    if node.down and comes_back:
        new = structs.replace(new, down=False)
        if not (new.drain or new.fail):
            new = structs.replace(new, reason="", reason_uid=0, reason_at=UnixTime(0))
        return new
    # Unlike Slurm only where runs were lost: an idle node that was rebooted on purpose comes back by itself.
    if rebooted_under_jobs and service != 2 and not (node.down or node.drain):
        new = structs.replace(new, down=True, reason=REBOOTED, reason_uid=0)
    return new


# ---- silence ---------------------------------------------------------------------------------------------------


def lose_nodes(state: State, command: LoseNodes, at: UnixTime) -> list[Event]:
    """Set nodes DOWN that were silent for too long and end what is there; nobody is waited for on them."""
    lost = {node for node in command.nodes if not state.nodes[node].down}
    events: list[Event] = []
    for index in sorted(lost):
        node = state.nodes[index]
        # A drained node keeps the reason for which it was drained.
        kept = bool(node.reason) and (node.drain or node.fail)
        events.append(
            NodeChanged(
                at=at,
                node=index,
                down=True,
                drain=node.drain,
                fail=node.fail,
                reason=node.reason if kept else command.reason,
                reason_uid=node.reason_uid if kept else 0,
            )
        )
    events += _end_runs(state, lost, at, gone=True)
    return events


def _end_runs(state: State, nodes: set[int], at: UnixTime, *, gone: bool) -> list[Event]:
    """End the runs on nodes that failed. `gone`: nobody there will ever say that nothing is left."""
    events: list[Event] = []
    away = nodes if gone else set()
    for job_id in sorted({job_id for node in nodes for job_id in state.node_jobs[node]}):
        job = state.jobs[job_id]
        if JobState.PENDING < job.state <= JobState.SUSPENDED and job.alloc is not None:
            failed = next(share.node for share in job.alloc.shares if share.node in nodes)
            name = state.nodes[failed].spec.name
            events.append(end_by_node_failure(state, job, at, name, completing=other_nodes(job, *away)))
        elif away:
            done = tuple(node for node in job.completing if node in away)
            events.append(NodesReleased(at=at, job_id=JobId(job_id), nodes=done))
    return events


# ---- administration --------------------------------------------------------------------------------------------


def update_node(state: State, command: UpdateNode, at: UnixTime) -> list[Event]:
    """Change state, reason, weight or features of nodes: of all that are named, or of none.

    Raises:
        Denied: the caller is no administrator.
        NotFound: a node is not known.
        InvalidInput: a state that does not exist, or DOWN, DRAIN or FAIL without a reason.
        Refused: a state that the node cannot go to from where it is.
    """
    if not command.by.admin:
        raise Denied(slurm_text(2010), "only administrators change nodes", slurm_code=2010)
    if not command.nodes or not all(0 <= node < len(state.nodes) for node in command.nodes):
        raise NotFound(slurm_text(2018), slurm_code=2018)
    changed = [_updated(state, command, index, at) for index in dict.fromkeys(command.nodes)]
    events: list[Event] = [event for event in changed if event is not None]
    if command.state == "DOWN":
        # Agents that still live clean up and say so; the tick gives up on those that do not.
        events += _end_runs(state, set(command.nodes), at, gone=False)
    return events


def _updated(state: State, command: UpdateNode, index: int, at: UnixTime) -> NodeChanged | None:
    node = state.nodes[index]
    new = _in_state(state, node, command.state, command.reason) if command.state is not None else node
    reason, uid = new.reason, new.reason_uid
    if command.reason is not None:
        reason, uid = command.reason, command.by.uid if command.reason else 0
    event = NodeChanged(
        at=at,
        node=index,
        down=new.down,
        drain=new.drain,
        fail=new.fail,
        reason=reason,
        reason_uid=uid,
        weight=command.weight,
        features=command.features,
    )
    same = (new.down, new.drain, new.fail, reason) == (node.down, node.drain, node.fail, node.reason)
    if same and command.weight in (None, node.spec.weight) and command.features in (None, node.spec.features):
        return None
    return event


def _in_state(state: State, node: Node, word: str, reason: str | None) -> Node:
    """Give the node in the state asked for; its reason goes with the last mark that it explained."""
    word = word.upper()
    if word in ("DOWN", "DRAIN", "FAIL"):
        if not reason and not node.reason:
            raise InvalidInput(NO_REASON, 'give Reason="..." with it')
        mark = {"DOWN": "down", "DRAIN": "drain", "FAIL": "fail"}[word]
        return structs.replace(node, **{mark: True})
    if word == "RESUME":
        if not (node.down or node.drain or node.fail):
            raise Refused(BAD_TRANSITION, f"node {node.spec.name} is not down, drained or failing")
        new = structs.replace(node, down=False, drain=False, fail=False)
    elif word == "UNDRAIN":
        new = structs.replace(node, drain=False)
    elif word == "IDLE":
        if state.node_jobs[node.index]:
            raise Refused(BAD_TRANSITION, f"node {node.spec.name} has jobs")
        new = structs.replace(node, down=False, fail=False)
    elif word in _UNSUPPORTED:
        raise Refused(slurm_text(2036), f"node state {word} is not offered", slurm_code=2036)
    else:
        raise InvalidInput(
            slurm_text(2028),
            f"{word[:40]!r} is none of DOWN, DRAIN, FAIL, RESUME, UNDRAIN, IDLE",
            slurm_code=2028,
        )
    if word == "RESUME" or not (new.down or new.fail or new.drain):
        new = structs.replace(new, reason="", reason_uid=0)
    return new
