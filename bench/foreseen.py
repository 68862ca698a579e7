"""The mix with its accounts and licences as the product has them, and the product's calendar of it."""

from __future__ import annotations

from msgspec.structs import replace

from bench.mix import ACCOUNTS, Mix
from ctld.core.accounts import Accounts, Association, Limits, Qos
from ctld.core.apply.indexes import rebuild
from ctld.core.model import Job
from ctld.core.state import State
from ctld.sched.calendar import Calendar, foresee
from tests.builders import NOON
from tests.placing import everywhere


def real(mix: Mix) -> State:
    """Give a state in which limits hold for each account and licences are asked for by the jobs themselves."""
    made = mix.state
    nodes = len(made.nodes)
    state = State()
    state.nodes, state.partitions, state.node_jobs = made.nodes, made.partitions, [{} for _ in made.nodes]
    state.settings = replace(
        made.settings,
        accounting_enforce=("associations", "limits"),
        licenses={"matlab": nodes // 2, "ansys": nodes // 2},
    )
    rows = [Association(1, "root", qos=("normal",))]
    for number in range(ACCOUNTS):
        tight = 8 if number % 10 == 0 else 2
        limits = Limits(grp_tres={"cpu": 64 * nodes // tight}, grp_jobs=8 * nodes // tight)
        rows.append(Association(2 + number, f"a{number}", 1, limits=limits))
        rows.append(Association(2 + ACCOUNTS + number, f"a{number}", 2 + number, f"u{number}"))
    state.accounts = Accounts(rows, [Qos(1, "normal")])
    state.jobs = {job_id: _real(mix, job) for job_id, job in made.jobs.items()}
    rebuild(state)
    return state


def calendar(state: State) -> Calendar:
    """Plan the whole queue, from nothing."""
    return foresee(state, NOON, reachable=everywhere(state))


def _real(mix: Mix, job: Job) -> Job:
    number = mix.accounts[job.id]
    name, count = mix.licenses.get(job.id, ("", 0))
    asked = f"{name}:{count}" if name else ""
    request = replace(job.spec.request, licenses=asked) if asked else job.spec.request
    spec = replace(job.spec, request=request, account=f"a{number}", user=f"u{number}", uid=1000 + number)
    alloc = replace(job.alloc, licenses=asked) if job.alloc is not None and asked else job.alloc
    return replace(job, spec=spec, alloc=alloc)
