"""scontrol explain job ID: why a job waits, question by question, with the numbers of each."""

from __future__ import annotations

from cli import base
from muster import client, errors
from muster.timepoints import format_time_point
from muster.units import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def explain(arguments: list[str], *, cluster: str | None, as_json: bool, shape: str | None, argv: list[str]) -> int:
    """Carry out `explain job ID` or `explain job=ID`."""
    word, equals, value = arguments[0].partition("=")
    if equals:
        arguments = [word, value, *arguments[1:]]
    if len(arguments) != 2 or not word or not "jobid".startswith(word.lower()):
        raise base.Quit(1, f"invalid entity:{arguments[0]} for keyword:explain", "it is: scontrol explain job ID")
    if as_json:
        from cli import json_output

        if json_output.list_asked("scontrol", shape):
            return 0
    head = arguments[1].partition("_")[0]
    if not (head.isascii() and head.isdigit() and int(head[:12])):
        raise base.Quit(1, f"scontrol: error: Invalid job id: {arguments[1]}")
    try:
        answer = client.call("GET", f"/v1/jobs/{client.quote(arguments[1])}/explanation")
    except errors.MusterError as problem:
        raise base.refused("slurm_load_jobs", problem) from None
    base.cluster_line("scontrol", cluster, answer["cluster"], False)
    if as_json:
        from cli import json_output

        payload = {"explanations": answer["explanations"]}
        base.write(json_output.page(payload, ["scontrol", *argv], answer["cluster"]))
    else:
        base.write("\n".join([_text(one) for one in answer["explanations"]]))
    return 0


def _text(one: dict[str, Any]) -> str:
    lines = [f"Job {one['id']} ({one['name']}) of {one['user']}: {one['state']}"]
    if "stages" not in one:
        return "\n".join([*lines, f"  {one['sentence']}", ""])
    lines[0] += f", {one['reason_text']}"
    lines += [f"  {one['sentence']}", ""]
    start = f"{_moment(one['start_at'])} on {one['nodes']}" if one["nodes"] else _moment(one["start_at"])
    lines.append(f"Planned start: {start if one['start_at'] else 'not known yet'}")
    lines.append(f"Priority:      {one['priority']}")
    lines.append(f"Waited:        {_waited(one)}")
    lines += [_stage(stage) for stage in one["stages"]]
    for partition in one["partitions"]:
        lines += ["", *_partition(partition)]
    if one["blockers"]:
        lines += ["", "What it needs is held by"]
        lines += [f"  {_blocker(blocker)}" for blocker in one["blockers"]]
        more = one["blocking"] - len(one["blockers"])
        lines += [f"  and {more} more jobs"] if more else []
    return "\n".join([*lines, ""])


def _waited(one: dict[str, Any]) -> str:
    if not one["eligible_at"]:
        return "not counted: it could not start yet"
    text = format_duration(one["waited_seconds"])
    if one["longest_wait_seconds"] >= 0:
        text += f" of at most {format_duration(one['longest_wait_seconds'])} (max_queue_wait)"
    return text + (", so it goes first" if one["late"] else "")


def _partition(view: dict[str, Any]) -> list[str]:
    place = f"place {view['place']} of {view['waiting']}" if view["place"] else "not in line"
    lines = [f"Partition {view['name']}: {place}", *map(_stage, view["stages"])]
    if view["filters"]:
        lines.append(f"  Nodes ({view['nodes_needed']} needed):")
        lines += [f"    {one['nodes']:5} {one['sentence']}" for one in view["filters"]]
    if view["limits"]:
        lines.append("  Limits:")
        lines += [f"    {_limit(one)}" for one in view["limits"]]
    return lines


def _stage(stage: dict[str, Any]) -> str:
    return f"  {stage['name']:<12} {'ok   ' if stage['passed'] else 'waits'} {stage['sentence']}"


def _limit(one: dict[str, Any]) -> str:
    what = f"{one['limit']} {one['tres']}".rstrip()
    asked = "no limit" if one["asked"] < 0 else one["asked"]
    mark = "  <- in the way" if one["in_the_way"] else ""
    return f"{what} of {one['of']}: {one['most']}, {one['used']} used, {asked} asked for{mark}"


def _blocker(one: dict[str, Any]) -> str:
    who = f"job {one['id']} of {one['user']}"
    if one["starts_at"]:
        return f"{who}: waits, and is promised {one['nodes']} from {_moment(one['starts_at'])} on"
    until = {-1: "without a time limit", 0: "about to be over"}.get(one["ends_at"])
    return f"{who}: {one['state']} on {one['nodes']} {until or 'until ' + _moment(one['ends_at']) + ' at the latest'}"


def _moment(seconds: int) -> str:
    return format_time_point(seconds) if seconds else ""
