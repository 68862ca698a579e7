"""gres.conf: what devices a node has and how to find them (gres.conf(5))."""

from __future__ import annotations

from typing import Any

from muster.config.keys import field_values, read_line
from muster.config.linekeys import GRES
from muster.config.nodelists import expand_hosts, index_list
from muster.config.problems import Place, Problems
from muster.config.records import GresConfig, GresLine
from muster.config.syntax import Line
from muster.config.values import is_digits

MAX_FILES = 1024
_ENV_FLAGS = ("nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env", "no_gpu_env", "env_uuid")
_SHARED = ("shard", "mps")


def gres_config(
    lines: list[Line], gres_types: tuple[str, ...], known_nodes: set[str], problems: Problems
) -> GresConfig:
    """Read the lines of gres.conf; names must be in GresTypes, nodes that are not configured are a warning."""
    autodetect = ""
    found: list[GresLine] = []
    for line in lines:
        values = field_values(read_line(GRES, line.pairs, line.place, problems))
        if "autodetect" in values and "name" not in values and "nodes" not in values:
            autodetect = str(values["autodetect"])
            continue
        record = _line(values, gres_types, known_nodes, line.place, problems)
        if record is not None:
            found.append(_inherit_env(record, found))
            if record.autodetect and record.nodes is None:
                autodetect = record.autodetect
    return GresConfig(autodetect, tuple(found))


def _line(
    values: dict[str, Any], gres_types: tuple[str, ...], known_nodes: set[str], place: Place, problems: Problems
) -> GresLine | None:
    nodes: tuple[str, ...] | None = None
    if "nodes" in values:
        nodes = tuple(expand_hosts(values["nodes"], "NodeName", place, problems))
        strange = [node for node in nodes if node not in known_nodes]
        if strange:
            problems.warning(place, f"NodeName: {strange[0]} is not a node of slurm.conf")
    name = values.get("name", "")
    if not name:
        if "autodetect" in values:
            return GresLine(nodes=nodes, autodetect=values["autodetect"])
        problems.error(place, "the line names no device", "add Name=, for example Name=gpu")
        return None
    if name not in gres_types:
        problems.error(
            place,
            f"Name={name}: GresTypes does not name it",
            f"add GresTypes={','.join((*gres_types, name))} to slurm.conf",
        )
        return None
    files = _files(values.get("files", ""), "File", place, problems)
    several = _files(values.get("multiple_files", ""), "MultipleFiles", place, problems)
    if files and several:
        problems.error(place, "File and MultipleFiles exclude each other", "keep one of the two")
    count = values.get("count")
    if files and count is not None and count != len(files) and name not in _SHARED:
        problems.error(place, f"Count={count} does not match the {len(files)} devices of File", "leave out Count")
    cores: tuple[int, ...] = ()
    if values.get("cores"):
        indexes = index_list(values["cores"])
        if indexes is None:
            problems.error(place, f'Cores="{values["cores"][:80]}" is not a list of core numbers', "write Cores=0-15")
        cores = indexes or ()
    return GresLine(
        nodes=nodes,
        autodetect=values.get("autodetect", ""),
        name=name,
        type=values.get("type", ""),
        count=count,
        files=files,
        multiple_files=several,
        cores=cores,
        links=_links(values.get("links", ""), len(files), place, problems),
        flags=values.get("flags", ()),
    )


def _files(text: str, key: str, place: Place, problems: Problems) -> tuple[str, ...]:
    found = tuple(expand_hosts(text, key, place, problems))
    if len(found) > MAX_FILES:
        problems.error(place, f"{key} names {len(found)} devices, more than {MAX_FILES}")
        return ()
    for path in found:
        if not path.startswith("/"):
            problems.error(place, f'{key}="{path[:80]}" must be an absolute path')
            return ()
    return found


def _links(text: str, files: int, place: Place, problems: Problems) -> tuple[int, ...]:
    if not text:
        return ()
    if files > 1:
        problems.error(place, f"Links stands on a line of {files} devices", "write one line a device")
        return ()
    found: list[int] = []
    for item in text.split(","):
        number = item.strip()
        if number != "-1" and not (is_digits(number) and len(number) < 6):
            problems.error(
                place, f'Links="{text[:80]}" is not a list of link counts', "write for example Links=-1,4,4,4"
            )
            return ()
        found.append(int(number))
    if found.count(-1) != 1:
        problems.error(place, f'Links="{text[:80]}" must hold -1 once, at the place of the device itself')
        return ()
    return tuple(found)


def _inherit_env(record: GresLine, before: list[GresLine]) -> GresLine:
    """A line without env flags takes those of the line before of the same nodes, name and type."""
    if not record.name or any(flag in _ENV_FLAGS for flag in record.flags):
        return record
    for other in reversed(before):
        if (other.nodes, other.name, other.type) == (record.nodes, record.name, record.type):
            inherited = tuple(flag for flag in other.flags if flag in _ENV_FLAGS)
            if not inherited:
                return record
            return GresLine(
                nodes=record.nodes, autodetect=record.autodetect, name=record.name, type=record.type,
                count=record.count, files=record.files, multiple_files=record.multiple_files, cores=record.cores,
                links=record.links, flags=(*record.flags, *inherited),
            )  # fmt: skip
    return record
