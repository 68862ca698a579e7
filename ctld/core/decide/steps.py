"""Numbered steps: made inside a running job, cancelled, ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ctld.core import ranges
from ctld.core.commands import CancelStep, CreateStep, FinishStep, StepRequest
from ctld.core.decide.ending import as_ordered, drain_at_fault, end_by_kill, finish, other_nodes
from ctld.core.decide.refusals import denied, invalid, may_change, refused, unknown_job
from ctld.core.decide.step_layout import (
    Place,
    block_ranks,
    cyclic_ranks,
    exact_cores,
    pack,
    places_of,
    plane_counts,
    spread,
)
from ctld.core.events import Event, KillOrdered, StepCreated, StepFinished, StepKillOrdered, StepReported
from ctld.core.model import UNLIMITED, Caller, Job, Kill, NodeShare, Ranges, Step, StepResult
from ctld.core.record import aggregate_status, end_of, step_record
from ctld.core.state import State
from muster.errors import InvalidInput
from muster.ids import BATCH_STEP, JobId, StepId, UnixTime
from muster.states import JobState, Reason

TASK_FAILURE = "TASK FAILURE"


# ---- making ----------------------------------------------------------------------------------------------------


def create_step(state: State, command: CreateStep, at: UnixTime) -> list[Event]:
    """Make a step of a running job.

    Raises:
        Refused: `Requested nodes are busy` (2016) while other steps use what it needs: ask again when one
        ended; also when the job does not run. InvalidInput: the job never has what it needs. Denied,
        NotFound: not the caller's job; no such job.
    """
    job = _running_job(state, command.job_id, command.by)
    settings, request = state.settings, command.request
    if job.next_step >= settings.max_step_count:
        raise refused(2076, f"MaxStepCount is {settings.max_step_count}")
    assert job.alloc is not None, "a running job has nodes"
    places = _candidates(state, job, request)
    ntasks, nodes_min, nodes_max = _size(job, request, len(places))
    cpus_per_task = request.cpus_per_task or 1
    exact = request.exact or bool(request.cpus_per_task)
    most = min(request.ntasks_per_node or settings.max_tasks_per_node, settings.max_tasks_per_node)
    whole = [min(most, place.share.cpus // cpus_per_task) for place in places]
    if not nodes_min:
        # Inherited: all nodes of the job on which a task fits, and no more nodes than tasks.
        nodes_min = max(1, min(ntasks, nodes_max, sum(1 for tasks in whole if tasks)))
    _check_possible(places, whole, request, ntasks, nodes_min)
    room = [min(most, _room(place, request, cpus_per_task)) for place in places]
    chosen = _chosen(room, ntasks, nodes_min, nodes_max)
    if chosen is None:
        # A shape that the whole job cannot hold within its most nodes will not fit later either.
        if _chosen(whole, ntasks, nodes_min, nodes_max) is None:
            raise invalid(2005, f"{ntasks} tasks of {cpus_per_task} CPUs do not fit on {nodes_max} nodes of the job")
        raise refused(2016, "other steps of the job use what this one needs")
    packs = "cr_pack_nodes" in state.settings.select_flags
    counts, ranks = _layout(request.distribution, ntasks, [room[place] for place in chosen], packs=packs)
    shares = tuple(
        _share(places[place], request, count, cpus_per_task, exact) for place, count in zip(chosen, counts, strict=True)
    )
    step = Step(
        job_id=job.id,
        step_id=StepId(job.next_step),
        name=request.name,
        uid=job.spec.uid,
        created_at=at,
        shares=shares,
        ntasks=ntasks,
        cpus_per_task=cpus_per_task,
        argv=request.argv,
        ranks=ranks,
        overlap=request.overlap,
        limit_seconds=request.limit_minutes * 60 if request.limit_minutes > 0 else UNLIMITED,
        environment=request.environment,
        launch=request.launch,
        kill_on_bad_exit=request.kill_on_bad_exit or settings.kill_on_bad_exit,
    )
    return [StepCreated(at=at, step=step)]


def _running_job(state: State, job_id: JobId, by: Caller) -> Job:
    job = state.jobs.get(job_id)
    if job is None:
        raise unknown_job(state, job_id)
    if not may_change(job, by):
        raise denied(2002, f"job {job_id} belongs to {job.spec.user}")
    if job.state == JobState.PENDING:
        raise refused(2024, f"job {job_id} has not started")
    if job.state == JobState.SUSPENDED:
        raise refused(2077, f"resume job {job_id} first")
    if job.state != JobState.RUNNING or job.kill is not None:
        raise refused(2021, f"job {job_id} has ended or is being ended")
    return job


def _candidates(state: State, job: Job, request: StepRequest) -> list[Place]:
    """Give the nodes of the job that the step may use, in their order."""
    assert job.alloc is not None, "a running job has nodes"
    names = {state.nodes[share.node].spec.name: share.node for share in job.alloc.shares}
    strange = [name for name in (*request.nodelist, *request.exclude) if name not in names]
    if any(name in request.nodelist for name in strange):
        raise invalid(2014, f"node {strange[0]} is not one of job {job.id}")
    places = places_of(job.alloc.shares, state.steps.get(job.id, {}).values())
    if request.relative >= len(places):
        raise invalid(2014, f"-r{request.relative}, but job {job.id} has {len(places)} nodes, counted from 0")
    if request.relative >= 0:
        places = places[request.relative :]
    excluded = {names[name] for name in request.exclude if name in names}
    # -w names nodes that must take part; it names all where it says how many there are.
    wanted = {names[name] for name in request.nodelist}
    if wanted and not request.nodes_max > len(wanted) and not request.nodes_min > len(wanted):
        places = [place for place in places if place.share.node in wanted]
    else:
        places.sort(key=lambda place: (place.share.node not in wanted, place.share.node))
    places = [place for place in places if place.share.node not in excluded]
    if not places:
        raise invalid(2014, f"no node of job {job.id} is left for the step")
    return places


def _size(job: Job, request: StepRequest, available: int) -> tuple[int, int, int]:
    """Give tasks, least (0: not given) and most nodes of the step; what is not given comes from the job."""
    assert job.alloc is not None, "a running job has nodes"
    if request.nodes_min > available:
        raise InvalidInput(f"Only allocated {available} nodes asked for {request.nodes_min}", slurm_code=2006)
    nodes_max = min(request.nodes_max or request.nodes_min or available, available)
    nodes_min = request.nodes_min
    if not nodes_min and request.nodelist:
        nodes_min = min(len(set(request.nodelist)), available)
    ntasks = request.ntasks
    if not ntasks and request.ntasks_per_node:
        ntasks = request.ntasks_per_node * (nodes_min or nodes_max)
        nodes_min = nodes_min or nodes_max
    elif not ntasks and nodes_min:
        ntasks = nodes_min
    elif not ntasks:
        ntasks = sum(share.tasks for share in job.alloc.shares)
    return ntasks, min(nodes_min, ntasks), max(1, min(nodes_max, ntasks))


def _check_possible(
    places: Sequence[Place], room: Sequence[int], request: StepRequest, ntasks: int, nodes_min: int
) -> None:
    """Refuse what does not fit the job even when nothing else runs in it."""
    gpus = max(0, request.gpus_per_node)
    with_gpus = [place for place in places if ranges.count(place.share.gpus) >= gpus] if gpus else list(places)
    if len(with_gpus) < nodes_min:
        raise invalid(2072, f"{gpus} GPUs a node, and the job has fewer")
    if request.memory_mib and all(request.memory_mib > place.share.memory_mib > 0 for place in places):
        raise invalid(2044, f"{request.memory_mib} MiB a node, and the job has less")
    if sum(room) < ntasks:
        raise invalid(2005, f"{ntasks} tasks, and the job has room for {sum(room)}")


def _room(place: Place, request: StepRequest, cpus_per_task: int) -> int:
    """Count the tasks that find what they need on a node now."""
    share = place.share
    if request.gpus_per_node > 0:
        if place.free_gpus(request.overlap).bit_count() < request.gpus_per_node:
            return 0
    elif request.gpus_per_node < 0 and place.free_gpus(request.overlap) != ranges.to_bitmap(share.gpus):
        return 0
    if request.memory_mib and share.memory_mib:
        left = share.memory_mib - (0 if request.overlap else place.busy_memory_mib)
        if left < request.memory_mib:
            return 0
    cpus = share.cpus if request.overlap else share.cpus - place.busy_cpus
    return max(0, cpus // cpus_per_task)


def _chosen(room: Sequence[int], ntasks: int, nodes_min: int, nodes_max: int) -> list[int] | None:
    """Choose the first nodes that hold the step, of those with room the fewest; None when they do not hold
    it."""
    roomy = [place for place, tasks in enumerate(room) if tasks]
    for wanted in range(nodes_min, min(nodes_max, len(roomy)) + 1):
        first = roomy[:wanted]
        if sum(room[place] for place in first) >= ntasks:
            return first
        largest = sorted(roomy, key=lambda place: -room[place])[:wanted]
        if sum(room[place] for place in largest) >= ntasks:
            return sorted(largest)
    return None


def _layout(
    distribution: str, ntasks: int, room: Sequence[int], *, packs: bool
) -> tuple[list[int], tuple[Ranges, ...]]:
    """Give the tasks and the ranks of each node.

    Args:
        packs: block distribution fills a node before the next where it does not say otherwise (CR_Pack_Nodes).
    """
    words = distribution.lower().split(",")
    first = words[0].split(":")[0]
    if first.startswith("plane"):
        size_text = first.partition("=")[2]
        plane = int(size_text) if size_text.isdigit() and int(size_text) else 1
        counts = plane_counts(ntasks, room, plane)
        if 0 not in counts:
            return counts, cyclic_ranks(counts, plane)
    if first in ("", "*"):
        first = "cyclic" if ntasks <= len(room) else "block"
    if first == "block" and ("pack" in words[1:] or (packs and "nopack" not in words[1:])):
        counts = pack(ntasks, room)
    else:
        counts = spread(ntasks, room)
    return counts, cyclic_ranks(counts) if first == "cyclic" else block_ranks(counts)


def _share(place: Place, request: StepRequest, tasks: int, cpus_per_task: int, exact: bool) -> NodeShare:
    """Give what the step may use on a node."""
    share = place.share
    cores, cpus = share.cores, share.cpus
    if exact:
        cores, cpus = exact_cores(place, tasks * cpus_per_task, request.overlap)
    gpus = share.gpus
    if request.gpus_per_node >= 0:
        gpus = ranges.from_bitmap(ranges.lowest_bits(place.free_gpus(request.overlap), request.gpus_per_node))
    memory = min(request.memory_mib or share.memory_mib, share.memory_mib) if share.memory_mib else request.memory_mib
    gres = share.gres if request.gpus_per_node < 0 else ()
    return NodeShare(share.node, cpus, cores, memory, gpus, tasks, gres)


# ---- ending ----------------------------------------------------------------------------------------------------


def cancel_step(state: State, command: CancelStep, at: UnixTime) -> list[Event]:
    """End one step with SIGKILL; the batch step is the job.

    Raises:
        Refused: `Job/step already completing or completed` when there is no such step any more.
        Denied, NotFound: not the caller's job; no such job.
    """
    job = state.jobs.get(command.job_id)
    if job is None:
        raise unknown_job(state, command.job_id)
    if not may_change(job, command.by):
        raise denied(2002, f"job {job.id} belongs to {job.spec.user}")
    running = job.state in (JobState.RUNNING, JobState.SUSPENDED)
    kill = Kill(state=int(JobState.CANCELLED), at=at, by=command.by.uid, now=True)
    if command.step_id == BATCH_STEP and running and job.spec.batch:
        return [] if job.kill is not None else [KillOrdered(at=at, job_id=job.id, kill=kill)]
    step = state.steps.get(job.id, {}).get(command.step_id)
    if step is None or not running:
        raise refused(2021, f"step {job.id}.{command.step_id} does not run")
    if step.kill is not None:
        return []
    return [StepKillOrdered(at=at, job_id=job.id, step_id=step.step_id, kill=kill)]


def finish_step(state: State, command: FinishStep, at: UnixTime) -> list[Event]:
    """Take one node's report; the last one ends the step, and with step 0 an allocation that has no
    script."""
    job = state.jobs.get(command.job_id)
    step = state.steps.get(command.job_id, {}).get(command.step_id)
    result = command.result
    if job is None or step is None or job.state not in (JobState.RUNNING, JobState.SUSPENDED):
        return []
    nodes = {share.node for share in step.shares}
    reported = {earlier.node for earlier in step.results}
    if job.restarts != command.run or result.node not in nodes or result.node in reported:
        return []
    events = drain_at_fault(state, result, at)
    if nodes - reported != {result.node}:
        events.append(StepReported(at=at, job_id=job.id, step_id=step.step_id, result=result))
        if step.kill_on_bad_exit and step.kill is None and aggregate_status((result,)):
            kill = Kill(state=int(JobState.FAILED), at=at, why=TASK_FAILURE, now=True)
            events.append(StepKillOrdered(at=at, job_id=job.id, step_id=step.step_id, kill=kill))
        return events
    whole = structs.replace(step, results=(*step.results, result))
    record = step_record(state, job, whole, ended_at=at)
    done = StepFinished(at=at, job_id=job.id, step_id=step.step_id, record=record)
    if job.spec.batch or step.step_id != 0:
        return [*events, done]
    return [*events, done, _end_allocation(state, job, whole, at)]


def _end_allocation(state: State, job: Job, step: Step, at: UnixTime) -> Event:
    """An allocation of srun's own ends as its step 0 did; other steps of it end with it."""
    status = aggregate_status(step.results)
    derived = status if not status & 0x7F else 0
    job = structs.replace(as_ordered(job), derived_status=max(job.derived_status, derived))
    ended = frozenset({int(step.step_id)})
    completing = other_nodes(job)
    if job.kill is not None:
        return end_by_kill(state, job, at, status=status, completing=completing, ended_steps=ended)
    if step.kill is not None and step.kill.state != JobState.FAILED:
        end = JobState(step.kill.state)
        return finish(
            state, job, at, end, status=status, completing=completing, cancelled_by=step.kill.by, ended_steps=ended
        )
    end, reason = end_of(status)
    error = _launch_error(step.results)
    if error and status == 1 << 8:
        reason = Reason.LAUNCH_FAILURE
    return finish(
        state, job, at, end, status=status, reason=reason, state_text=error, completing=completing, ended_steps=ended
    )


def _launch_error(results: Sequence[StepResult]) -> str:
    return next((result.error for result in results if result.error), "")
