"""Bounds on the jobs of one user, partition or association that a calendar looks at (bf_max_job_user and its like)."""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core.cluster import Planning
from ctld.core.model import Job


class Quota:
    """Counts the jobs of one calendar. Jobs over a bound are left out, as if they were not there."""

    def __init__(self, rules: Planning) -> None:
        self._rules = rules
        self._counts: dict[tuple[object, ...], int] = {}
        self._reserving: dict[str, int] = {}
        self._any = bool(
            rules.jobs_of_user
            or rules.jobs_of_partition
            or rules.jobs_of_association
            or rules.jobs_of_user_in_partition
        )

    def admits(self, job: Job, partitions: Sequence[str]) -> bool:
        """Tell whether one more job may be looked at, and count it then (in the first of its partitions)."""
        if not self._any:
            return True
        rules, spec = self._rules, job.spec
        name = partitions[0] if partitions else spec.partitions[0]
        bounds = (
            (("user", spec.uid, name), rules.jobs_of_user_in_partition),
            (("partition", name), rules.jobs_of_partition),
            (("association", spec.account, spec.user), rules.jobs_of_association),
            (("user", spec.uid), rules.jobs_of_user),
        )
        keys = [key for key, most in bounds if most]
        if any(most and self._counts.get(key, 0) >= most for key, most in bounds):
            return False
        for key in keys:
            self._counts[key] = self._counts.get(key, 0) + 1
        return True

    def may_reserve(self, partition: str) -> bool:
        """Tell whether nodes may be kept for one more job of a partition, and count it then."""
        most = self._rules.reserving_in_partition
        if not most:
            return True
        count = self._reserving[partition] = self._reserving.get(partition, 0) + 1
        return count <= most
