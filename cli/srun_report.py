"""What srun says of its tasks' ends, and the exit code that follows from them."""

from __future__ import annotations

from cli.base import say
from muster import hostlist, idset, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_KILL, _TERM = 9, 15


class Ends:
    """How the tasks ended so far."""

    def __init__(self, step: str, ntasks: int, *, say_line: Callable[[str], None] = say) -> None:
        self._step = step
        self._ntasks = ntasks
        self._say = say_line
        self._statuses: dict[int, int] = {}
        self._nodes: dict[int, str] = {}
        self._told: set[int] = set()
        self._forced = False
        self.failed_launch = False

    def add(self, node: str, rank: int, status: int) -> None:
        """Note one task's wait status."""
        self._statuses[rank] = status
        self._nodes[rank] = node

    def running(self, ranks: list[int]) -> list[int]:
        """Give those of `ranks` that have not ended."""
        return [rank for rank in ranks if rank not in self._statuses]

    @property
    def any_ended(self) -> bool:
        """Whether a task has ended."""
        return bool(self._statuses)

    def report(self) -> None:
        """Say each way in which tasks not yet spoken of have failed: one line a kind of end."""
        kinds: dict[int, list[int]] = {}
        for rank, status in self._statuses.items():
            if status and rank not in self._told:
                kinds.setdefault(status, []).append(rank)
        for status, ranks in sorted(kinds.items()):
            self._told.update(ranks)
            hosts = hostlist.uniq(sorted({self._nodes[rank] for rank in ranks}))
            listed = _ranks(ranks)
            word = "task" if len(ranks) == 1 else "tasks"
            signo = status & 0x7F
            if signo:
                how = signals.describe_signal(signo) + (" (core dumped)" if status & 0x80 else "")
            else:
                how = f"Exited with exit code {status >> 8}"
            self._say(f"srun: error: {hosts}: {word} {listed}: {how}")
            if signo in (_KILL, _TERM) and not self._forced:
                self._forced = True
                self._say(f"srun: Force Terminated StepId={self._step}")

    def states(self) -> list[str]:
        """Give the lines that a first Ctrl-C prints: one for each state of tasks."""
        running = [rank for rank in range(self._ntasks) if rank not in self._statuses]
        abnormal = [rank for rank, status in self._statuses.items() if status]
        normal = [rank for rank, status in self._statuses.items() if not status]
        lines = []
        for ranks, state in ((running, "running"), (abnormal, "exited abnormally"), (normal, "exited")):
            if ranks:
                word = "task" if len(ranks) == 1 else "tasks"
                lines.append(f"srun: StepId={self._step} {word} {_ranks(ranks)}: {state}")
        return lines

    @property
    def code(self) -> int:
        """srun's exit code: a signal's death dominates, the highest wins; then the highest exit code."""
        deaths = [status & 0x7F for status in self._statuses.values() if status & 0x7F]
        if deaths:
            return 128 + max(deaths)
        codes = [status >> 8 for status in self._statuses.values()]
        if self.failed_launch or len(self._statuses) < self._ntasks:
            return max([1, *codes])
        return max(codes, default=0)


def _ranks(ranks: list[int]) -> str:
    parts = []
    for first, last, step in idset.IdSet.from_iterable(ranks).ranges():
        if step == 1 and last > first:
            parts.append(f"{first}-{last}")
        else:
            parts += [str(rank) for rank in range(first, last + 1, step)]
    return ",".join(parts)
