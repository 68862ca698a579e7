"""Licences as claims on pools: what a job takes of each, and which alternative a job gets now."""

from __future__ import annotations

from collections.abc import Iterable

from ctld.core import licenses
from ctld.core.cluster import Settings
from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.core.state import State
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


class Licences:
    """Those in use, with those of a pass's starts."""

    def __init__(self, state: State) -> None:
        self._there = state.settings.licenses
        self._used = state.free.licenses
        self._copied = False

    def free(self, request_text: str) -> str | None:
        """Give the first alternative that is free, as the text that an allocation holds; None: none is."""
        for one in licenses.wanted_of(request_text):
            if all(self._used.get(name, 0) + count <= self._there.get(name, 0) for name, count in one):
                return licenses.text_of((one,))
        return None

    def take(self, request_text: str) -> str:
        """Give what a start holds, of licences that are free."""
        held = self.free(request_text)
        assert held is not None, "who is started has been asked whether its licences are free"
        if not self._copied:
            self._copied, self._used = True, dict(self._used)
        for name, count in licenses.held(held).items():
            self._used[name] = self._used.get(name, 0) + count
        return held


def _claims(settings: Settings, pairs: Iterable[tuple[str, int]]) -> tuple[Claim, ...]:
    return tuple(
        Claim(("license", name), settings.licenses.get(name, 0), count, Reason.LICENSES) for name, count in pairs
    )
