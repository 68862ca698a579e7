"""Licences as claims on pools: what a job takes of each."""

from __future__ import annotations

from collections.abc import Iterable

from ctld.core import licenses
from ctld.core.cluster import Settings
from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.sched.pools import Claim
from muster.states import Reason


def licence_claims(settings: Settings, job: Job) -> tuple[tuple[Claim, ...], ...]:
    """Give a job's alternatives, each the claims that it takes all of; the first that has room is taken. A job without
    licences has the one alternative of no claims.

    A running job has the one that it holds.
    """
    if job.alloc is not None and job.alloc.licenses:
        return (_claims(settings, licenses.held(job.alloc.licenses).items()),)
    wanted = licenses.wanted_of(job.spec.request.licenses)
    return tuple(_claims(settings, one) for one in wanted) or ((),)


NO_LICENCE = Wait(Reason.LICENSES)


def _claims(settings: Settings, pairs: Iterable[tuple[str, int]]) -> tuple[Claim, ...]:
    return tuple(
        Claim(("license", name), settings.licenses.get(name, 0), count, Reason.LICENSES) for name, count in pairs
    )
