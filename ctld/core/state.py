"""The whole state of the controller: records by id, and what is derived from them.

Derived parts (`free`, `queue`, `by_array`, ...) are kept by `apply` together with the records, never stored,
and rebuilt by `rebuild`; the invariants check that both agree.
"""

from __future__ import annotations

from ctld.core.accounts import Accounts
from ctld.core.changes import ChangeLog
from ctld.core.cluster import Node, PartitionSpec, Settings
from ctld.core.deadlines import Deadlines
from ctld.core.free import FreeTable
from ctld.core.limits.book import Book
from ctld.core.limits.load import Load
from ctld.core.model import Job, Step
from ctld.core.queue import Queue
from ctld.core.reservations import Reservation
from ctld.core.usage import Usage
from muster.ids import JobId, UnixTime


class State:
    """Everything that the journal's events add up to."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.jobs: dict[int, Job] = {}
        self.steps: dict[int, dict[int, Step]] = {}
        """job id -> step id -> step that has not ended."""
        self.nodes: list[Node] = []
        self.partitions: dict[str, PartitionSpec] = {}
        self.accounts = Accounts()
        """Associations and QOS; exchanged whole, never changed."""
        self.reservations: dict[str, Reservation] = {}
        """Advance reservations by name, in the order in which they were made."""
        self.next_reservation = 1
        """Number of the next reservation."""
        self.next_job_id: JobId = JobId(1)
        self.at: UnixTime = UnixTime(0)
        """Time of the newest event."""
        self.array_status: dict[int, int] = {}
        """Array job id -> worst exit status of its members that were purged, while other members are in
        memory."""

        # Derived.
        self.partition_nodes: dict[str, frozenset[int]] = {}
        """Partition -> its node indexes as a set."""
        self.node_index: dict[str, int] = {}
        self.free = FreeTable()
        self.queue = Queue()
        """Pending jobs that may start as far as holds, dependencies and begin time go, by class."""
        self.by_array: dict[int, set[int]] = {}
        """Array job id -> ids of its members that have records (the array's own id included)."""
        self.dependants: dict[int, set[int]] = {}
        """Job id -> ids of pending jobs with a clause on it (0: those with singleton)."""
        self.running: dict[int, None] = {}
        """Ids of running jobs, in order of start."""
        self.run_log = ChangeLog()
        """Ids of jobs that have or had an allocation, whenever their records changed."""
        self.completing: dict[int, None] = {}
        """Ids of ended or requeued jobs with nodes not yet released."""
        self.node_jobs: list[dict[int, None]] = []
        """For each node the ids of jobs that hold resources there."""
        self.deferred: dict[int, None] = {}
        """Ids of pending jobs that wait for time or dependency (not in `queue`), held ones included."""
        self.ended: dict[int, None] = {}
        """Ids of ended jobs, in order of their end (for purging)."""
        self.users: dict[int, int] = {}
        """uid -> number of jobs in memory that have not ended."""
        self.members = 0
        """Jobs in memory for MaxJobCount: an array counts each member."""
        self.array_running: dict[int, int] = {}
        """Array job id -> number of its members that run."""
        self.in_reservation: dict[str, dict[int, None]] = {}
        """Reservation -> ids of the jobs that run in it, or wait and name it."""
        self.due = Deadlines()
        """When a job next needs a tick: end of its limit, its warning, its begin time, its purge."""
        self.timed: dict[int, None] = {}
        """Ids of pending jobs with a clause `after:job+minutes`."""
        self.usage = Usage()
        """What associations and QOS have used: values are records, the rates at which they grow are derived."""
        self.limits = Book()
        """Which limits hold for whom."""
        self.load = Load()
        """What is in use of that which limits look at."""
        self.fitting: set[object] = set()
        """What the nodes as they are configured can run some day, of what was asked so far: a memo, no part of the
        state (see `ctld.core.decide.fit`)."""
        self.booked: dict[int, None] = {}
        """Ids of pending jobs that were promised what their victims leave."""
        self.suspended: dict[int, None] = {}
        """Ids of suspended jobs."""
        self.interned: dict[object, object] = {}
        """Equal parts of records are kept once: part -> the one kept."""
        self.interned_own: dict[object, object] = {}
        """The same of parts that mostly are a job's own, for the newest jobs."""
