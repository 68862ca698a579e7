"""The text of dependencies: `afterok:5:6_3,singleton`, read and printed.

spec   := clause ("," clause)*      all must hold
        | clause ("?" clause)*      any one suffices
clause := type ":" target (":" target)* | "singleton" | target (":" target)*     (a bare id: afterany)
target := job id [ "_" (index | "*") ] [ "+" minutes ]                           (minutes only with after)
"""

from __future__ import annotations

from ctld.core.model import Clause, Job
from ctld.core.state import State
from muster.errors import InvalidInput
from muster.ids import NO_TASK
from muster.slurm_errors import slurm_text

KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr")
SINGLETON = "singleton"
MAX_CLAUSES = 1000
"""Most targets of one job."""
_MAX_NUMBER = 2**31 - 1


def parse(text: str) -> tuple[tuple[Clause, ...], bool]:
    """Read a dependency text: the clauses, and whether any one of them suffices.

    What `clause_text` prints is accepted too. Empty and `0` mean none.

    Raises:
        InvalidInput: `Job dependency problem`, with what is wrong in the hint.
    """
    given = text.strip()
    plain = given.replace("(unfulfilled)", "").replace("(failed)", "")
    if plain in ("", "0"):
        return (), False
    if "," in plain and "?" in plain:
        raise problem(f"`{_shown(given)}` mixes , (all) and ? (any); use one of them")
    separator = "?" if "?" in plain else ","
    clauses: dict[Clause, None] = {}
    for piece in plain.split(separator):
        for clause in _parse_clause(piece, given):
            clauses[clause] = None
            if len(clauses) > MAX_CLAUSES:
                raise problem(f"more than {MAX_CLAUSES} targets; depend on an array as a whole, or on one last job")
    return tuple(clauses), separator == "?"


def _parse_clause(piece: str, given: str) -> list[Clause]:
    word, colon, rest = piece.strip().partition(":")
    kind = word.lower()
    if kind == SINGLETON:
        if colon:
            raise problem("singleton takes no job id")
        return [Clause(SINGLETON)]
    if kind in KINDS:
        targets = rest
    elif word[:1].isdigit():
        kind, targets = "afterany", piece.strip()
    elif not word:
        raise problem(f"`{_shown(given)}` has an empty part")
    else:
        raise problem(f"unknown type `{_shown(word)}`; the types are {', '.join(KINDS)} and {SINGLETON}")
    return [_parse_target(kind, target) for target in targets.split(":")]


def _parse_target(kind: str, target: str) -> Clause:
    name, plus, minutes_text = target.partition("+")
    minutes = 0
    if plus:
        if kind != "after":
            raise problem(f"`{_shown(target)}`: +minutes goes with after only")
        minutes = _number(minutes_text, target)
    job_text, underscore, task_text = name.partition("_")
    job_id = _number(job_text, target)
    if not job_id:
        raise problem(f"`{_shown(target)}`: a job id is at least 1")
    task_id = _number(task_text, target) if underscore and task_text != "*" else NO_TASK
    return Clause(kind, job_id, task_id, minutes)


def _number(text: str, target: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > _MAX_NUMBER:
        raise problem(f"`{_shown(target)}` is no job id; write for example afterok:5 or afterok:5_3")
    return int(text)


def problem(hint: str) -> InvalidInput:
    """Give the refusal of a dependency."""
    return InvalidInput(slurm_text(2038), hint, slurm_code=2038)


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "..."


def dependency_text(state: State, job: Job) -> str:
    """Print what is left of a job's dependencies, as squeue and scontrol show it; empty when nothing is."""
    separator = "?" if job.clauses_any else ","
    return separator.join(clause_text(clause, clause.job_id in state.by_array) for clause in job.clauses)


def clause_text(clause: Clause, is_array: bool = False) -> str:
    """Print one clause: `afterok:5_*(unfulfilled)`."""
    fate = "(failed)" if clause.failed else "(unfulfilled)"
    if clause.kind == SINGLETON:
        return SINGLETON + fate
    member = f"_{clause.task_id}" if clause.task_id != NO_TASK else "_*" if is_array else ""
    minutes = f"+{clause.minutes}" if clause.minutes else ""
    return f"{clause.kind}:{clause.job_id}{member}{minutes}{fate}"
