"""Find and read the configuration: `load` for controller and node agent, `load_dbd` for the accounting daemon.

The main file is named by MUSTER_CONF, else by SLURM_CONF, else it is muster.conf or slurm.conf in the directory
(/etc/muster); gres.conf, topology.yaml or topology.conf, and cgroup.conf lie beside it. Everything that is wrong
is reported at once, a sentence a line; what depends on a part that could not be read is not reported with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from muster.config.cgroup import cgroup_config
from muster.config.dbd import check_mode, dbd_config
from muster.config.gres import gres_config
from muster.config.keys import read_line
from muster.config.linekeys import POWER_ACTION
from muster.config.nodes import NodeLines
from muster.config.partitions import PartitionLines
from muster.config.problems import Place, Problems
from muster.config.records import ClusterConfig, DbdConfig, PartitionConfig, Topology
from muster.config.slurm import Globals
from muster.config.syntax import GLOB_TEXT, Line, Source, read_text
from muster.config.topology import Draft, checked, group_nodes, topology_conf
from muster.config.topology_yaml import topology_yaml
from muster.errors import ConfigError, InvalidInput
from muster.topology_levels import level_number, read_wish

DIRECTORY = Path("/etc/muster")
MAIN_NAMES = ("muster.conf", "slurm.conf")
DBD_NAMES = ("dbd.conf", "slurmdbd.conf")


def load(path_or_dir: Path | None = None, environ: Mapping[str, str] = os.environ) -> ClusterConfig:
    """Read the whole configuration.

    Args:
        path_or_dir: the main file or its directory; None looks at MUSTER_CONF, SLURM_CONF and /etc/muster.
        environ: where those two variables are looked up.

    Raises:
        ConfigError: with every mistake found, each line `file:line: sentence`.
    """
    main = find_main(path_or_dir, environ)
    problems = Problems()
    source = Source(problems)
    source.read(main)
    companions = {name: _read_companion(main.parent / name, problems) for name in _COMPANIONS}
    return _assemble(source, main, companions, problems)


def parse(
    text: str,
    *,
    name: str = "muster.conf",
    gres: str = "",
    topology: str = "",
    topology_yaml: str = "",
    cgroup: str = "",
) -> ClusterConfig:
    """Read a configuration from texts that stand for the files; Include is looked up in the working directory."""
    problems = Problems()
    source = Source(problems)
    source.parse(text, name, Path())
    texts = {"gres.conf": gres, "topology.conf": topology, "topology.yaml": topology_yaml, "cgroup.conf": cgroup}
    return _assemble(source, Path(name), {key: value or None for key, value in texts.items()}, problems)


def load_dbd(path_or_dir: Path | None = None, environ: Mapping[str, str] = os.environ) -> DbdConfig:
    """Read dbd.conf or slurmdbd.conf: the file given, or the one beside the main file.

    Raises:
        ConfigError: with every mistake found, or when the file holds a password and others may read it.
    """
    if path_or_dir is None:
        named = environ.get("MUSTER_CONF") or environ.get("SLURM_CONF")
        path_or_dir = DIRECTORY if not named else Path(named) if Path(named).is_dir() else Path(named).parent
    main = _in_directory(path_or_dir, DBD_NAMES)
    problems = Problems()
    source = Source(problems)
    source.read(main)
    check_mode(main, source, problems)
    return dbd_config(source, main, problems)


def find_main(path_or_dir: Path | None, environ: Mapping[str, str]) -> Path:
    """The main file; ConfigError when there is none, naming where it was looked for."""
    if path_or_dir is not None:
        return _in_directory(path_or_dir, MAIN_NAMES)
    for variable in ("MUSTER_CONF", "SLURM_CONF"):
        if environ.get(variable):
            return _in_directory(Path(environ[variable]), MAIN_NAMES)
    return _in_directory(DIRECTORY, MAIN_NAMES)


_COMPANIONS = ("gres.conf", "topology.conf", "topology.yaml", "cgroup.conf")


def _in_directory(path: Path, names: tuple[str, ...]) -> Path:
    if not path.is_dir() and path != DIRECTORY:
        return path
    for name in names:
        if (path / name).exists():
            return path / name
    raise ConfigError(
        f"{path}: there is neither {names[0]} nor {names[1]}",
        "name the file with MUSTER_CONF; `muster up` makes one of its own",
    )


def _read_companion(path: Path, problems: Problems) -> str | None:
    """The text of a file beside the main one, or None when there is none."""
    return read_text(path, problems, Place(str(path))) if path.exists() else None


def _assemble(source: Source, main: Path, companions: dict[str, str | None], problems: Problems) -> ClusterConfig:
    place = Place(str(main))
    glob = Globals(problems)
    node_lines = NodeLines(problems)
    partition_lines = PartitionLines(problems)
    for line in source.lines:
        _dispatch(line, glob, node_lines, partition_lines, problems)
    values = glob.fields(place)
    if "GLOB_SILENCE" in values["debug_flags"]:
        problems.warnings = [warning for warning in problems.warnings if GLOB_TEXT not in warning]
    if values["association_file"]:
        values["association_file"] = str(main.parent / values["association_file"])
    nodes, names = node_lines.build(slurmd_port=values["slurmd_port"], gres_types=values["gres_types"])
    gres = gres_config(
        _lines(companions, "gres.conf", main, source, problems), values["gres_types"], set(names.order), problems
    )
    cgroup, cgroup_by_node = cgroup_config(_lines(companions, "cgroup.conf", main, source, problems), problems)
    drafts = _drafts(companions, main, source, problems)
    # Partitions and topology name nodes: with a mistake above, their errors would only repeat it.
    problems.raise_if_any()
    topologies = tuple(checked(draft, names, problems) for draft in drafts) or (Topology(),)
    partitions = partition_lines.build(names, group_nodes(topologies))
    _check_chosen(topologies, partitions, partition_lines.places, problems)
    _check_preemption(values["preempt_mode"], partitions, partition_lines.places, problems)
    _warn_topology(values["topology_plugin"], topologies, glob, place, problems)
    problems.raise_if_any()
    return ClusterConfig(
        **values,
        nodes=nodes,
        partitions=partitions,
        gres=gres,
        topologies=topologies,
        cgroup=cgroup,
        cgroup_by_node=cgroup_by_node,
        raw=glob.raw(),
        path=str(main),
        config_hash=source.digest(),
        without_effect=tuple(problems.without_effect),
        warnings=tuple(problems.warnings),
    )


def _dispatch(
    line: Line, glob: Globals, node_lines: NodeLines, partition_lines: PartitionLines, problems: Problems
) -> None:
    """Global keys one by one; a record key takes the rest of its line."""
    for index, pair in enumerate(line.pairs):
        rest = line.pairs[index:]
        lower = pair.key.lower()
        if lower == "nodename":
            node_lines.add_node(rest, line.place)
        elif lower == "downnodes":
            node_lines.add_down(rest, line.place)
        elif lower == "nodeset":
            node_lines.add_set(rest, line.place)
        elif lower == "partitionname":
            partition_lines.add(rest, line.place)
        elif lower == "poweraction":
            read_line(POWER_ACTION, rest, line.place, problems)
        else:
            glob.add(pair, line.place)
            continue
        return


def _lines(companions: dict[str, str | None], name: str, main: Path, source: Source, problems: Problems) -> list[Line]:
    text = companions[name]
    if text is None:
        return []
    reader = Source(problems, cluster_name=source.cluster_name)
    reader.parse(text, str(main.parent / name), main.parent)
    return reader.lines


def _drafts(companions: dict[str, str | None], main: Path, source: Source, problems: Problems) -> list[Draft]:
    """topology.yaml wins over topology.conf."""
    yaml = companions["topology.yaml"]
    if yaml is not None:
        return topology_yaml(yaml, str(main.parent / "topology.yaml"), problems)
    if companions["topology.conf"] is None:
        return []
    lines = _lines(companions, "topology.conf", main, source, problems)
    return [topology_conf(lines, Place(str(main.parent / "topology.conf")), problems)]


def _check_preemption(
    modes: tuple[str, ...], partitions: tuple[PartitionConfig, ...], places: dict[str, Place], problems: Problems
) -> None:
    for partition in partitions:
        if partition.preempt_mode == "SUSPEND" and "GANG" not in modes:
            problems.error(
                places[partition.name],
                f"PartitionName={partition.name}: PreemptMode=SUSPEND requires GANG too",
                "add GANG to the cluster's PreemptMode",
            )


def _check_chosen(
    topologies: tuple[Topology, ...],
    partitions: tuple[PartitionConfig, ...],
    places: dict[str, Place],
    problems: Problems,
) -> None:
    for partition in partitions:
        place, what = places[partition.name], f"PartitionName={partition.name}"
        chosen = [one for one in topologies if partition.topology in ("", one.name)]
        if not chosen:
            problems.error(place, f"{what}: Topology={partition.topology} is not defined in topology.yaml")
            continue
        try:
            wish = read_wish(partition.default_topology)
            if wish.level:
                level_number(chosen[0], wish.level)
        except InvalidInput as error:
            problems.error(
                place, f"{what}: DefaultTopology={partition.default_topology[:80]} cannot be had", error.hint
            )


def _warn_topology(
    plugin: str, topologies: tuple[Topology, ...], glob: Globals, place: Place, problems: Problems
) -> None:
    kind = plugin.rpartition("/")[2]
    where = glob.place_of("TopologyPlugin", place)
    if kind in ("tree", "block", "ring") and topologies[0].kind == "flat":
        problems.warning(where, f"TopologyPlugin={plugin} has no topology.conf or topology.yaml to read")
    elif glob.given("TopologyPlugin") and kind in ("flat", "default", "") and topologies[0].kind != "flat":
        problems.warning(
            where, f"TopologyPlugin={plugin} is overruled by the {topologies[0].kind} topology that is defined"
        )
