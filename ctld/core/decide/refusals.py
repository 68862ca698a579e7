"""Refusals by Slurm's number, and who may do what to a job."""

from __future__ import annotations

from ctld.core.model import Caller, Job
from ctld.core.state import State
from muster.errors import Denied, InvalidInput, NotFound, Refused
from muster.slurm_errors import slurm_text


def refused(code: int, hint: str = "") -> Refused:
    """The state of the object or a policy forbids it."""
    return Refused(slurm_text(code), hint, slurm_code=code)


def invalid(code: int, hint: str = "") -> InvalidInput:
    """The request itself is wrong."""
    return InvalidInput(slurm_text(code), hint, slurm_code=code)


def denied(code: int, hint: str = "") -> Denied:
    """The caller may not do this."""
    return Denied(slurm_text(code), hint, slurm_code=code)


def unknown_job(state: State, job_id: int) -> NotFound:
    """No job of this id is in memory."""
    issued = state.settings.first_job_id <= job_id < state.next_job_id
    hint = f"job {job_id} has left memory, `sacct -j {job_id}` shows it" if issued else f"there is no job {job_id}"
    return NotFound(slurm_text(2017), hint, slurm_code=2017)


def may_change(job: Job, caller: Caller) -> bool:
    """Tell whether the caller is the job's owner or an administrator."""
    return caller.admin or caller.uid == job.spec.uid


def is_root_of_its_node(state: State, job: Job, caller: Caller) -> bool:
    """Tell whether the caller is root on a host where the job runs: prologs and health checks may hold or requeue
    such a job, and nothing else."""
    if caller.uid != 0 or job.alloc is None:
        return False
    index = state.node_index.get(caller.host)
    return index is not None and any(share.node == index for share in job.alloc.shares)
