"""NodeName, DownNodes and NodeSet lines into one NodeConfig for each node."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from muster.config.keys import Given, Key, field_values, read_line
from muster.config.linekeys import DOWN_NODES, NODE, NODE_SET, OLD_NODE_STATES
from muster.config.nodelists import NodeNames, expand_hosts, index_list
from muster.config.problems import Place, Problems
from muster.config.records import Gres, NodeConfig
from muster.config.syntax import Pair
from muster.config.values import read_count

MAX_NODES = 65536
MAX_GPUS = 1024
"""Of a node, as with Slurm."""
_NO_TYPE = re.compile(r"[-+]?[\d.]+[KMGTPkmgtp]?")
"""A number that is no count, as one with a sign or too many digits."""
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_GRES_KEY = Key("Gres", "count")
_NO_DEFAULT = ("NodeAddr", "NodeHostname", "BcastAddr")


class NodeLines:
    """Collects the lines in order of reading; `build` gives the nodes once the global keys are known."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._defaults: dict[str, Given] = {}
        self._lines: list[tuple[Place, dict[str, Given]]] = []
        self._down: list[tuple[Place, dict[str, Given]]] = []
        self._sets: list[tuple[Place, dict[str, Given]]] = []

    def add_node(self, pairs: tuple[Pair, ...], place: Place) -> None:
        """Take a NodeName line; a DEFAULT line changes what the following ones start from."""
        given = read_line(NODE, pairs, place, self._problems)
        if pairs[0].value.upper() == "DEFAULT":
            for name in _NO_DEFAULT:
                if name in given:
                    self._problems.error(place, f"{name} not allowed with NodeName=DEFAULT")
            self._defaults = merged(self._defaults, given, "NodeName")
            return
        inherited = self._defaults
        for name, other in (("Sockets", "SocketsPerBoard"), ("SocketsPerBoard", "Sockets")):
            if name in given and other not in given:
                inherited = {key: item for key, item in inherited.items() if key != other}
        for name, other in (("CoreSpecCount", "CpuSpecList"), ("CpuSpecList", "CoreSpecCount")):
            if name in given and other not in given:
                inherited = {key: item for key, item in inherited.items() if key != other}
        self._lines.append((place, merged(inherited, given)))

    def add_down(self, pairs: tuple[Pair, ...], place: Place) -> None:
        """Take a DownNodes line."""
        self._down.append((place, read_line(DOWN_NODES, pairs, place, self._problems)))

    def add_set(self, pairs: tuple[Pair, ...], place: Place) -> None:
        """Take a NodeSet line."""
        self._sets.append((place, read_line(NODE_SET, pairs, place, self._problems)))

    def build(self, *, slurmd_port: int, gres_types: tuple[str, ...]) -> tuple[tuple[NodeConfig, ...], NodeNames]:
        """The nodes in order of the file, DownNodes applied, and their names with the NodeSets."""
        nodes: dict[str, NodeConfig] = {}
        for place, given in self._lines:
            self._expand(place, field_values(given), nodes, slurmd_port, gres_types)
            if len(nodes) > MAX_NODES:
                self._problems.error(place, f"more than {MAX_NODES} nodes are configured")
                break
        for place, given in self._down:
            values = field_values(given)
            for name in expand_hosts(str(values.get("names", "")), "DownNodes", place, self._problems):
                if name not in nodes:
                    self._problems.error(place, f"DownNodes: no NodeName line defines {name}")
                    break
                nodes[name] = msgspec.structs.replace(
                    nodes[name], state=str(values.get("state", "DOWN")), reason=str(values.get("reason", ""))
                )
        ordered = tuple(nodes.values())
        names = NodeNames(ordered)
        for place, given in self._sets:
            self._add_set(place, field_values(given), names)
        return ordered, names

    def _add_set(self, place: Place, values: dict[str, Any], names: NodeNames) -> None:
        name = values.get("name", "")
        if not name:
            self._problems.error(place, "NodeSet has no name")
        elif name in names.order:
            self._problems.error(place, f"NodeSet={name} is also the name of a node", "give the set another name")
        elif name.upper() in ("ALL", "DEFAULT"):
            self._problems.error(place, f"'{name}' is a reserved word disallowed for use with NodeSet")
        elif name in names.sets:
            self._problems.error(place, f"NodeSet={name} is defined twice")
        elif "nodes" not in values and "feature" not in values:
            self._problems.error(place, f"NodeSet={name} has neither Nodes nor Feature")
        else:
            chosen = set(names.resolve(values.get("nodes", ""), f"NodeSet={name}", place, self._problems))
            chosen.update(names.with_feature(values.get("feature", "")))
            names.sets[name] = tuple(sorted(chosen, key=names.order.__getitem__))

    def _expand(
        self, place: Place, values: dict[str, Any], nodes: dict[str, NodeConfig], slurmd_port: int,
        gres_types: tuple[str, ...],
    ) -> None:  # fmt: skip
        """Add one node for each name of a line; what all share is worked out once."""
        written = values.get("names", "")
        names = expand_hosts(written, "NodeName", place, self._problems)
        if not names:
            if not written:
                self._problems.error(place, "NodeName is empty")
            return
        hostnames = self._parallel("NodeHostname", values.get("hostnames", ""), names, place)
        addrs = self._parallel("NodeAddr", values.get("addrs", ""), hostnames, place)
        ports = self._ports(values.get("ports", ""), len(names), slurmd_port, place)
        template = self._template(written, values, gres_types, place)
        for name, hostname, addr, port in zip(names, hostnames, addrs, ports, strict=True):
            if name.upper() == "ALL":
                self._problems.error(place, f"'{name}' is a reserved word disallowed for use with NodeName")
            elif _NAME.fullmatch(name) is None:
                self._problems.error(place, f"NodeName={name[:80]} may hold letters, digits, - _ and . only")
                return
            elif name in nodes:
                hint = "each node has one NodeName line; common values go to NodeName=DEFAULT"
                self._problems.error(place, f"Duplicated NodeName {name} in the config file", hint)
                return
            else:
                nodes[name] = msgspec.structs.replace(template, name=name, hostname=hostname, addr=addr, port=port)

    def _parallel(self, key: str, text: str, names: list[str], place: Place) -> list[str]:
        """The list that goes with the names: as many entries, or one for all (`DEFAULT`-free)."""
        if not text:
            return names
        found = expand_hosts(text, key, place, self._problems)
        if len(found) == len(names):
            return found
        if len(found) == 1:
            return found * len(names)
        if found:
            self._count_error(key, text, place)
        return names

    def _count_error(self, key: str, text: str, place: Place) -> None:
        self._problems.error(
            place,
            f"parsing {key}={text[:80]} : count is not coherent with the amount of records"
            " or there must be no more than one",
        )

    def _ports(self, text: str, count: int, default: int, place: Place) -> list[int]:
        if not text:
            return [default] * count
        ports: tuple[int, ...] | None = ()
        for item in text.strip("[]").split(","):
            # Slurm writes a range of ports with or without brackets; order is that of the names.
            part = index_list(item)
            ports = None if part is None or ports is None else (*ports, *part)
        if ports is None or not all(0 < port < 65536 for port in ports):
            self._problems.error(place, f'Port="{text[:80]}" is not a port (1 to 65535) or a range of ports')
            return [default] * count
        if len(ports) not in (1, count):
            self._count_error("Port", text, place)
            return [default] * count
        return list(ports) if len(ports) == count else [ports[0]] * count

    def _template(self, written: str, values: dict[str, Any], gres_types: tuple[str, ...], place: Place) -> NodeConfig:
        boards, sockets, cores, threads, cpus = self._layout(written, values, place)
        memory = values.get("real_memory_mib", 1)
        spec_memory = values.get("mem_spec_limit_mib", 0)
        if spec_memory and spec_memory >= memory:
            self._problems.error(place, f"MemSpecLimit={spec_memory} must be less than RealMemory={memory}")
        spec_list: tuple[int, ...] = ()
        if values.get("cpu_spec_list"):
            found = index_list(values["cpu_spec_list"])
            if found is None:
                self._problems.error(
                    place, f'CpuSpecList="{values["cpu_spec_list"][:80]}" is not a list of CPU numbers'
                )
            elif found[-1] >= cpus:
                self._problems.error(place, f"CpuSpecList names CPU {found[-1]} of a node with {cpus} CPUs")
            spec_list = found or ()
            if values.get("core_spec_count"):
                self._problems.error(place, "CoreSpecCount and CpuSpecList exclude each other", "keep one of the two")
        core_spec = values.get("core_spec_count", 0)
        state = values.get("state", "UNKNOWN")
        if core_spec >= sockets * cores and core_spec:
            self._problems.error(place, f"CoreSpecCount={core_spec} leaves none of {sockets * cores} cores for jobs")
        return NodeConfig(
            name="",
            hostname="",
            addr="",
            port=0,
            cpus=cpus,
            boards=boards,
            sockets=sockets,
            cores_per_socket=cores,
            threads_per_core=threads,
            real_memory_mib=memory,
            tmp_disk_mib=values.get("tmp_disk_mib", 0),
            weight=values.get("weight", 1),
            features=tuple(dict.fromkeys(values.get("features", ()))),
            gres=self._gres(values.get("gres", ""), gres_types, place),
            state=OLD_NODE_STATES.get(state, state),
            reason=values.get("reason", ""),
            core_spec_count=core_spec,
            cpu_spec_list=spec_list,
            mem_spec_limit_mib=spec_memory,
            restricted_cores_per_gpu=values.get("restricted_cores_per_gpu", 0),
            configured_by_cpus=not {"sockets", "sockets_per_board", "cores_per_socket", "threads_per_core"}
            & set(values),
        )

    def _layout(self, written: str, values: dict[str, Any], place: Place) -> tuple[int, int, int, int, int]:
        """Boards, sockets, cores per socket, threads per core and CPUs, what is missing being inferred."""
        boards = values.get("boards", 1)
        cores = values.get("cores_per_socket", 1)
        threads = values.get("threads_per_core", 1)
        cpus = values.get("cpus")
        if "sockets" in values and "sockets_per_board" in values:
            hint = "Sockets counts those of the node, SocketsPerBoard those of one board"
            self._problems.error(place, "Sockets and SocketsPerBoard exclude each other", hint)
        if "sockets_per_board" in values:
            sockets = boards * values["sockets_per_board"]
        elif "sockets" in values:
            sockets = values["sockets"]
            if sockets % boards:
                self._problems.error(place, f"Sockets={sockets} is not a multiple of Boards={boards}")
        elif cpus is not None:
            sockets = max(boards, cpus // (cores * threads))
        else:
            sockets = boards
        product = sockets * cores * threads
        if cpus is None:
            cpus = product
        elif cpus not in (product, sockets * cores, sockets):
            # Slurm's own text; what it falls back to is the product of the layout.
            self._problems.warning(
                place,
                f"NodeNames={written} CPUs={cpus} match no Sockets, Sockets*CoresPerSocket or"
                " Sockets*CoresPerSocket*ThreadsPerCore. Resetting CPUs.",
            )
            cpus = product
        if product > 65535:
            self._problems.error(
                place, f"Sockets, CoresPerSocket and ThreadsPerCore make {product} CPUs, more than 65535"
            )
        return boards, sockets, cores, threads, cpus

    def _gres(self, text: str, gres_types: tuple[str, ...], place: Place) -> tuple[Gres, ...]:
        """`name[:type][:no_consume]:count` items; the counts of equal name and type are added up."""
        found: dict[tuple[str, str], int] = {}
        typed: dict[str, bool] = {}
        fixed: set[str] = set()
        for item in text.split(","):
            parts = [part for part in item.strip().split(":") if part]
            if not parts or parts == ["(null)"]:
                continue
            name, rest = parts[0], parts[1:]
            if "no_consume" in [part.lower() for part in rest]:
                rest = [part for part in rest if part.lower() != "no_consume"]
                if name == "gpu":  # GPUs are told apart, and so always somebody's.
                    self._problems.unused("Gres no_consume", place)
                else:
                    fixed.add(name)
            try:
                # A last part that is no count is a type (such as the 1g.10gb of a MIG slice), and the count is 1.
                count = read_count(rest[-1], _GRES_KEY) if rest else 1
                rest = rest[:-1]
            except ValueError:
                count = 1
            if len(rest) > 1:
                hint = "write for example Gres=gpu:a100:4"
                self._problems.error(place, f'Gres="{item.strip()[:80]}" is not name[:type][:no_consume]:count', hint)
                continue
            kind = rest[0] if rest else ""
            if name not in gres_types:
                hint = f"add GresTypes={','.join((*gres_types, name))}"
                self._problems.error(place, f"Gres={item.strip()[:80]}: GresTypes does not name {name[:40]}", hint)
                continue
            if typed.setdefault(name, bool(kind)) != bool(kind):
                self._problems.error(
                    place,
                    f"Gres={text[:80]} gives some {name} a type and others none",
                    "give all of a name a type, or none",
                )
                continue
            if _NO_TYPE.fullmatch(kind):
                hint = "write for example Gres=gpu:a100:4"
                self._problems.error(place, f'Gres="{item.strip()[:80]}": {kind[:40]} is neither type nor count', hint)
                continue
            found[name, kind] = found.get((name, kind), 0) + count
        gpus = sum(count for (name, _), count in found.items() if name == "gpu")
        if gpus > MAX_GPUS:
            self._problems.error(place, f'Gres="{text[:80]}": a node has at most {MAX_GPUS} GPUs', "correct the count")
            return ()
        return tuple(Gres(name, kind, count, name in fixed) for (name, kind), count in found.items())


def merged(defaults: dict[str, Given], given: dict[str, Given], key: str = "") -> dict[str, Given]:
    """A line laid over the defaults key by key; an explicit empty value cancels. `key` itself is left out."""
    both = {**defaults, **given}
    return {name: item for name, item in both.items() if item.text and name != key}
