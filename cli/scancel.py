"""scancel: end or signal jobs and steps."""

from __future__ import annotations

import os

from cli import base, submitting
from muster import client
from muster.errors import InvalidInput, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SHORTS = "A:bcfHiM:n:p:q:QR:s:t:u:vVw:"
_LONGS = {
    "account": ("A", base.ARGUMENT),
    "admin-comment": ("admin-comment", base.ARGUMENT),
    "batch": ("b", base.NO_ARGUMENT),
    "clusters": ("M", base.ARGUMENT),
    "cron": ("c", base.NO_ARGUMENT),
    "ctld": ("ctld", base.NO_ARGUMENT),
    "full": ("f", base.NO_ARGUMENT),
    "help": ("help", base.NO_ARGUMENT),
    "hurry": ("H", base.NO_ARGUMENT),
    "interactive": ("i", base.NO_ARGUMENT),
    "jobname": ("n", base.ARGUMENT),
    "me": ("me", base.NO_ARGUMENT),
    "name": ("n", base.ARGUMENT),
    "nodelist": ("w", base.ARGUMENT),
    "partition": ("p", base.ARGUMENT),
    "qos": ("q", base.ARGUMENT),
    "quiet": ("Q", base.NO_ARGUMENT),
    "reservation": ("R", base.ARGUMENT),
    "sibling": ("sibling", base.ARGUMENT),
    "signal": ("s", base.ARGUMENT),
    "state": ("t", base.ARGUMENT),
    "usage": ("usage", base.NO_ARGUMENT),
    "user": ("u", base.ARGUMENT),
    "verbose": ("v", base.NO_ARGUMENT),
    "version": ("V", base.NO_ARGUMENT),
    "wckey": ("wckey", base.ARGUMENT),
}
_UNSUPPORTED = {
    "admin-comment": "--admin-comment", "c": "--cron", "H": "--hurry", "sibling": "--sibling",
}  # fmt: skip
_TEXT_VARIABLES = (
    ("SCANCEL_ACCOUNT", "A"), ("SCANCEL_NAME", "n"), ("SCANCEL_PARTITION", "p"), ("SCANCEL_QOS", "q"),
    ("SCANCEL_STATE", "t"), ("SCANCEL_USER", "u"), ("SCANCEL_WCKEY", "wckey"), ("SLURM_CLUSTERS", "M"),
)  # fmt: skip
_FLAG_VARIABLES = (
    ("SCANCEL_BATCH", "b"), ("SCANCEL_CRON", "c"), ("SCANCEL_CTLD", "ctld"), ("SCANCEL_FULL", "f"),
    ("SCANCEL_HURRY", "H"), ("SCANCEL_INTERACTIVE", "i"), ("SCANCEL_VERBOSE", "v"),
)  # fmt: skip
_FILTERS = (
    ("A", "account", "account"), ("n", "name", "job_name"), ("w", "nodelist", "nodelist"),
    ("p", "partition", "partition"), ("q", "qos", "qos"), ("R", "reservation", "reservation"), ("t", "state", "state"),
    ("u", "user", "user_name"),
    ("wckey", "wckey", "wckey"),
)  # fmt: skip
"""(key here, field of the request, name in messages), in the order of the messages."""
_STATES = {
    "PENDING": "PENDING", "PD": "PENDING", "RUNNING": "RUNNING", "R": "RUNNING", "SUSPENDED": "SUSPENDED",
    "S": "SUSPENDED",
}  # fmt: skip
_INVALID_ID, _ALREADY_OVER = 2017, 2021


def main(argv: list[str]) -> int:
    """End or signal what is named and give the exit code."""
    return base.run("scancel", _run, argv)


def _run(argv: list[str]) -> int:
    given, ids = _read(argv)
    if "V" in given:
        return base.print_version()
    if "help" in given or "usage" in given:
        base.write(_HELP if "help" in given else _USAGE)
        return 0
    filters = {field: given[key] for key, field, _ in _FILTERS if key in given}
    if "user" in filters:
        filters["user"] = str(base.uid_of(filters["user"]))
    if not ids and not filters:
        raise base.Quit(1, "scancel: error: No job identification provided")
    request: dict[str, Any] = {"ids": ids, **filters}
    if "s" in given:
        request["signal"] = given["s"]
    if "b" in given:
        request["batch"] = True
    if "f" in given:
        request["full"] = True
    path = "/v1/jobs/cancel"
    if "M" in given:
        path += f"?cluster={client.quote(given['M'])}"
    if "i" in given:
        confirmed = _ask(path, request)
        if not confirmed:
            return 0
        request = {key: value for key, value in request.items() if key in ("signal", "batch", "full")}
        request["ids"] = confirmed
        filters = {}
    results = _call(path, request)
    if filters and not results and "v" in given:
        names = "".join(f"{name}={given[key]} " for key, _, name in _FILTERS if key in given)
        base.error("scancel", f"No active jobs match ALL job filters, including: {names}")
    return _report(results, given)


def _read(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Give the options by key, the command line over the environment, and the ids."""
    found, ids = base.getopt("scancel", argv, _SHORTS, _LONGS)
    given: dict[str, str] = {}
    for variable, key in _TEXT_VARIABLES:
        text = os.environ.get(variable)
        if text:
            given[key] = text
    for variable, key in _FLAG_VARIABLES:
        if _is_on(variable):
            if key in _UNSUPPORTED:
                base.say(f"scancel: warning: {variable} is ignored: {_UNSUPPORTED[key]} is not supported by this "
                         "release of Muster")  # fmt: skip
            else:
                given[key] = ""
    for key, value in found:
        if key in _UNSUPPORTED:
            raise base.Quit(1, f"scancel: error: {_UNSUPPORTED[key]} is not supported by this release of Muster")
        if key == "me":
            given["u"] = str(os.getuid())
        else:
            given[key] = value or ""
    _check(given)
    return given, ids


def _check(given: dict[str, str]) -> None:
    """Judge the values that can be judged here."""
    state = given.get("t")
    if state is not None:
        if state.upper() not in _STATES:
            raise base.Quit(
                1,
                f"Invalid job state specified: {state}",
                "Valid job states are PENDING, RUNNING, and SUSPENDED",
            )
        given["t"] = _STATES[state.upper()]
    if "s" in given:
        from muster.signals import parse_signal

        try:
            given["s"] = str(parse_signal(given["s"]))
        except InvalidInput:
            raise base.Quit(1, f"Unknown job signal: {given['s']}") from None
    user = given.get("u")
    if user is not None and base.uid_of(user) is None:
        raise base.Quit(1, f"scancel: error: Invalid user name: {user}")


def _is_on(variable: str) -> bool:
    text = os.environ.get(variable)
    if text is None:
        return False
    word = text.lower()
    if word in ("true", "t", "yes", "1") or (variable == "SCANCEL_VERBOSE" and word.isdigit() and int(word) > 0):
        return True
    if word not in ("false", "f", "no", "0", ""):
        base.error("scancel", f"Unrecognized {variable} value: {text}")
    return False


def _call(path: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Carry it out and give the outcomes; that of a single id comes as the answer's own error."""
    try:
        results: list[dict[str, Any]] = submitting.post(path, submitting.encode("scancel", request))["results"]
    except MusterError as problem:
        if problem.slurm_code in (1800, 1802):
            raise base.refused("scancel:", problem) from None
        if len(request["ids"]) != 1 or _is_about_all(problem.sentence):
            raise
        error = {"sentence": problem.sentence, "slurm_code": problem.slurm_code, "hint": problem.hint}
        return [{"id": request["ids"][0], "error": error}]
    return results


def _is_about_all(sentence: str) -> bool:
    """Tell whether the call as a whole was refused: an id that is none, another cluster."""
    if sentence.startswith("No cluster "):
        return True
    return sentence.startswith("Invalid job id ") and sentence != "Invalid job id specified"


def _report(results: list[dict[str, Any]], given: dict[str, str]) -> int:
    """Say of each what Slurm's command says, and give the exit code."""
    code = 0
    signal = given.get("s")
    for one in results:
        name = one["id"]
        what = f"{'step' if '.' in name else 'job'} {name}"
        if "v" in given:
            base.say(f"scancel: Signal {signal} to {what}" if signal else f"scancel: Terminating {what}")
        problem = one.get("error")
        if problem is not None and _is_told(name, problem, given):
            kind = "job step id" if "." in name else "job id"
            base.error("scancel", f"Kill job error on {kind} {name}: {problem['sentence']}")
            if not _is_forgiven(name, problem, given):
                code = 1
    return code


def _is_forgiven(name: str, problem: dict[str, Any], given: dict[str, str]) -> bool:
    """Tell whether what went wrong counts as done: what was to end is not there any more."""
    if problem["slurm_code"] not in (_INVALID_ID, _ALREADY_OVER):
        return False
    if "." in name:
        return "s" in given and " has no step " in problem["hint"]
    return "Q" in given or not ("s" in given or "b" in given)


def _is_told(name: str, problem: dict[str, Any], given: dict[str, str]) -> bool:
    return not _is_forgiven(name, problem, given) or ("v" in given and "Q" not in given and "." not in name)


def _ask(path: str, request: dict[str, Any]) -> list[str]:
    """Ask about each job that is meant, and give the ids that got a yes."""
    jobs = client.call("POST", f"{path}{'&' if '?' in path else '?'}list=1", submitting.encode("scancel", request))[
        "jobs"
    ]
    confirmed: list[str] = []
    for job in jobs:
        what = "step_id" if "." in job["id"] else "job_id"
        question = f"Cancel {what}={job['id']} name={job['name']} partition={job['partition']} [y/n]? "
        if _answer(question):
            confirmed.append(job["id"])
    return confirmed


def _answer(question: str) -> bool:
    import sys

    while True:
        base.write(question)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word[:1] == "n":
            return False
        if word[:1] == "y":
            return True


_USAGE = """\
Usage: scancel [-A account] [--batch] [--ctld] [--full] [--interactive]
               [-M clusters] [--me] [-n job_name] [-p partition] [-q qos]
               [-Q] [-s signal] [-t PENDING|RUNNING|SUSPENDED] [-u user_name]
               [-v] [-V] [-w hosts...] [--wckey=wckey]
               [job_id[_array_id][.step_id]...]
"""
_HELP = """\
Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]...]

Options:
  -A, --account=ACCOUNT       only jobs that charge this account
  -b, --batch                 signal only the batch shell of the job
      --ctld                  let the controller do it in one request (it always does)
  -f, --full                  signal the batch shell, its children and all steps
  -i, --interactive           ask before each job
  -M, --clusters=NAME         refuse unless the controller is of this cluster
      --me                    only your own jobs
  -n, --name=NAME             only jobs of this name
  -p, --partition=PARTITION   only jobs in this partition
  -q, --qos=QOS               only jobs with this quality of service
  -R, --reservation=NAME      only jobs of this advance reservation
  -Q, --quiet                 say nothing of jobs that are over or unknown
  -s, --signal=SIGNAL         send this signal, a name or a number, instead of ending the job
  -t, --state=STATE           only jobs that are PENDING, RUNNING or SUSPENDED
  -u, --user=USER             only jobs of this user, a name or a number
  -v, --verbose               say what is done
  -V, --version               print the version
  -w, --nodelist=NODES        only jobs that use one of these nodes
      --wckey=KEY             only jobs with this workload key
      --help                  print this help
      --usage                 print the options in short
"""
