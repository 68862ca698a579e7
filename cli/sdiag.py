"""sdiag: what the controller has done: jobs, scheduling cycles, calls."""

from __future__ import annotations

import time

from cli import base
from muster import client, errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORTS = "ahiM:rtTV"
_NO, _ARG, _OPT = base.NO_ARGUMENT, base.ARGUMENT, base.OPTIONAL
LONGS = {
    "all": ("a", _NO),
    "cluster": ("M", _ARG),
    "clusters": ("M", _ARG),
    "help": ("h", _NO),
    "json": ("json", _OPT),
    "no-trunc": ("no-trunc", _NO),
    "reset": ("r", _NO),
    "sort-by-id": ("i", _NO),
    "sort-by-time": ("t", _NO),
    "sort-by-time2": ("T", _NO),
    "usage": ("usage", _NO),
    "version": ("V", _NO),
    "yaml": ("yaml", _OPT),
}
USAGE = "Usage: sdiag [-M cluster] [-aihrtTV] [--json] [--usage]\n"
HELP = """\
Usage: sdiag [OPTIONS]
  -a, --all                  all statistics (the default)
  -M, --cluster=name         the cluster to ask
  -r, --reset                start all counters anew; needs an administrator
  -i, --sort-by-id           calls sorted by the number of their kind, and of the user
  -t, --sort-by-time         calls sorted by their total time
  -T, --sort-by-time2        calls sorted by their average time
      --json[=shape]         JSON in the newest data shape; =list names the shapes
      --no-trunc             cut no lists (none is ever cut)
  -V, --version              print the version and leave

Help options:
  -h, --help                 show this help message
      --usage                show a brief summary of the options
"""
_TOLD = {"h": lambda: HELP, "usage": lambda: USAGE}
_STARS = "*" * 55


def main(argv: list[str]) -> int:
    """Print the statistics, or reset them."""
    return base.run("sdiag", _main, argv)


def _main(argv: list[str]) -> int:
    found, rest = base.getopt("sdiag", argv, SHORTS, LONGS)
    if any(base.tell(key, _TOLD) for key, _ in found):
        return 0
    values = dict(found)
    if "yaml" in values:
        raise base.Quit(1, "sdiag: error: --yaml is not supported by this release of Muster, --json is")
    if rest:
        base.write(USAGE)
        raise base.Quit(1, f"sdiag: error: Unrecognized option: {rest[0]}")
    if "json" in values:
        from cli import json_output

        if json_output.list_asked("sdiag", values["json"]):
            return 0
    if [key for key, _ in found if key in ("a", "r")][-1:] == ["r"]:  # of the two the last one counts
        if values.get("M"):
            _ask("GET", "/v1/statistics", values)  # of another cluster nothing is reset
        _ask("POST", "/v1/statistics/reset", values)
        base.write("Reset scheduling statistics\n")
        return 0
    answer = _ask("GET", "/v1/statistics", values)
    kinds = sorted(answer["kinds"], key=_order(values, "number"))
    users = sorted(answer["users"], key=_order(values, "uid"))
    if "json" in values:
        from cli import json_output, sdiag_json

        base.write(json_output.page(sdiag_json.payload(answer, kinds, users), ["sdiag", *argv], answer["cluster"]))
    else:
        base.write(_page(answer, kinds, users))
    return 0


def _ask(method: str, path: str, values: dict[str, str | None]) -> Any:
    what = "slurm_get_statistics" if method == "GET" else "slurm_reset_statistics"
    try:
        answer = client.call(method, path)
    except errors.MusterError as problem:
        end = base.refused(what, problem, colon=": ")
        end.code = 255
        raise end from None
    if method == "GET":
        base.cluster_line("sdiag", values.get("M"), answer["cluster"], False)
    return answer


def _order(values: dict[str, str | None], number: str) -> Any:
    """Give the key that calls are sorted by: of -i, -t and -T; else the most frequent stand first."""
    if "i" in values:
        return lambda one: one[number]
    if "t" in values:
        return lambda one: (-one["total"], one[number])
    if "T" in values:
        return lambda one: (-(one["total"] // one["count"]), one[number])
    return lambda one: (-one["count"], one[number])


def _page(answer: dict[str, Any], kinds: list[dict[str, Any]], users: list[dict[str, Any]]) -> str:
    jobs, main, deep = answer["jobs"], answer["main"], answer["deep"]
    lines = [
        _STARS,
        f"sdiag output at {_moment(answer['now'])}",
        f"Data since      {_moment(answer['since'])}",
        _STARS,
        f"Server thread count:  {answer['calls']}",
        "RPC queue enabled:    0",
        f"Agent queue size:     {answer['orders']}",
        "Agent count:          0",
        "Agent thread count:   0",
        f"DBD Agent queue size: {answer['events_behind']}",
        "",
        f"Jobs submitted: {jobs['submitted']}",
        f"Jobs started:   {jobs['started']}",
        f"Jobs completed: {jobs['completed']}",
        f"Jobs canceled:  {jobs['cancelled']}",
        f"Jobs failed:    {jobs['failed']}",
        "",
        f"Job states ts:  {_moment(answer['now'])}",
        f"Jobs pending:   {jobs['pending']}",
        f"Jobs running:   {jobs['running']}",
        "",
        "Main schedule statistics (microseconds):",
        f"\tLast cycle:   {main['last']}",
        f"\tMax cycle:    {main['longest']}",
        f"\tTotal cycles: {main['count']}",
        f"\tMean cycle:   {main['mean']}",
        f"\tMean depth cycle:  {main['mean_depth']}",
        *([f"\tCycles per minute: {main['per_minute']}"] if answer["now"] - answer["since"] > 60 else []),
        f"\tLast queue length: {main['last_queue']}",
        "",
        "Main scheduler exit:",
        f"\tEnd of job queue:{main['whole']:2d}",
        "\tHit default_queue_depth: 0",
        "\tHit sched_max_job_start: 0",
        "\tBlocked on licenses: 0",
        "\tHit max_rpc_cnt: 0",
        f"\tTimeout (max_sched_time):{main['out_of_time']:2d}",
        "",
        "Backfilling stats",
        f"\tTotal backfilled jobs (since last slurm start): {answer['backfilled']}",
        f"\tTotal backfilled jobs (since last stats cycle start): {answer['backfilled_today']}",
        "\tTotal backfilled heterogeneous job components: 0",
        *_backfill(deep),
        *([f"\tStale starts: {answer['stale']}"] if answer["stale"] else []),
        "",
        "Backfill exit",
        f"\tEnd of job queue:{deep['whole']:2d}",
        "\tHit bf_max_job_start: 0",
        "\tHit bf_max_job_test: 0",
        "\tSystem state changed: 0",
        "\tHit table size limit (bf_node_space_size): 0",
        f"\tTimeout (bf_max_time):{deep['out_of_time']:2d}",
        "",
        f"Latency for 1000 calls to gettimeofday(): {answer['clock_microseconds']} microseconds",
        "",
        "Remote Procedure Call statistics by message type",
        *(f"\t{one['name']:<40}({one['number']:5d}) {_calls(one)}" for one in kinds),
        "",
        "Remote Procedure Call statistics by user",
        *(f"\t{base.user_name(one['uid']):<16}({one['uid']:8d}) {_calls(one)}" for one in users),
        "",
        "Pending RPC statistics",
        "\tNo pending RPCs",
    ]
    return "\n".join(lines) + "\n"


def _backfill(deep: dict[str, Any]) -> list[str]:
    """Give the lines of the backfill cycles; means only where there was one."""
    count = deep["count"]
    when = _moment(deep["last_at"]) if deep["last_at"] else "N/A"
    lines = [
        f"\tTotal cycles: {count}",
        f"\tLast cycle when: {when}",
        f"\tLast cycle: {deep['last']}",
        f"\tMax cycle:  {deep['longest']}",
        f"\tMean cycle: {deep['mean']}" if count else "",
        f"\tLast depth cycle: {deep['last_depth']}",
        f"\tLast depth cycle (try sched): {deep['last_depth']}",
        f"\tDepth Mean: {deep['mean_depth']}" if count else "",
        f"\tDepth Mean (try depth): {deep['mean_depth']}" if count else "",
        f"\tLast queue length: {deep['last_queue']}",
        f"\tQueue length mean: {deep['mean_queue']}" if count else "",
        f"\tLast table size: {deep['last_table']}",
        f"\tMean table size: {deep['mean_table']}" if count else "",
    ]
    return [line for line in lines if line]


def _calls(one: dict[str, Any]) -> str:
    return f"count:{one['count']:<6d} ave_time:{one['total'] // one['count']:<6d} total_time:{one['total']}"


def _moment(seconds: int) -> str:
    return f"{time.strftime('%a %b %d %H:%M:%S %Y', time.localtime(seconds))} ({seconds})"
