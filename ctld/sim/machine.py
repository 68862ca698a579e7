"""The cluster that a workload is replayed on: from a configuration, from the trace, or from a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ctld import associations, configure
from ctld.core.cluster import NodeSpec, PartitionSpec
from ctld.core.commands import ApplyAccounts, ApplyConfig
from ctld.sim.workload import TraceNodes
from muster import hostlist
from muster.config.load import load, parse
from muster.config.records import ClusterConfig
from muster.errors import InvalidInput, NotFound

PLENTY_MIB = 1 << 40
"""Memory of a node of which nobody says how much it has."""
MANY_JOBS = 10_000_000
PARTITION = "batch"
_DEFAULTS = "ClusterName=sim\nSlurmctldHost=sim\nNodeName=sim\nPartitionName=batch Nodes=ALL Default=YES\n"


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes, partitions and settings, and what was chosen for scheduling."""

    name: str
    config: ClusterConfig
    command: ApplyConfig
    accounts: ApplyAccounts
    """Associations and QOS of the configuration's AssociationFile; none without one."""

    @property
    def cpus(self) -> int:
        """CPUs of all nodes."""
        return sum(node.cpus for node in self.command.nodes)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(len(node.gpus) for node in self.command.nodes)


def from_file(path: Path) -> Machine:
    """Take cluster and policy of a muster.conf or slurm.conf."""
    config = _load(path)
    return _machine(str(path), config, configure.command(config))


def _load(path: Path) -> ClusterConfig:
    if not path.exists():
        raise NotFound(f"there is no configuration {path}", "name a muster.conf or slurm.conf, or its folder")
    return load(path)


def from_nodes(groups: Sequence[TraceNodes], name: str, policy: Path | None = None) -> Machine:
    """Take the nodes that a trace names, with the policy of a configuration file, or Muster's defaults."""
    if not groups:
        raise InvalidInput(
            f"{name} does not say which nodes there were", "name a cluster: --config FILE, or --nodes and --cpus"
        )
    config = _load(policy) if policy else parse(_DEFAULTS)
    base = configure.command(config)
    specs: list[tuple[NodeSpec, tuple[str, ...]]] = []
    for group in groups:
        spec = NodeSpec(
            name="",
            cpus=group.cpus,
            cores_per_socket=group.cpus,
            memory_mib=group.memory_mib or PLENTY_MIB,
            features=group.features,
            gpus=(group.gpu_type,) * group.gpus,
        )
        specs += [(replace(spec, name=one), group.partitions or (PARTITION,)) for one in hostlist.expand(group.names)]
    specs.sort(key=lambda one: hostlist.natural_key(one[0].name))
    members: dict[str, list[int]] = {}
    for index, (_, partitions) in enumerate(specs):
        for partition in partitions:
            members.setdefault(partition, []).append(index)
    # The partition with the most nodes is the one for jobs that name none.
    default = max(members, key=lambda partition: len(members[partition]))
    made = tuple(
        PartitionSpec(name=partition, nodes=tuple(indexes), default=partition == default)
        for partition, indexes in members.items()
    )
    settings = replace(
        base.settings,
        cluster="sim",
        memory_consumable=all(group.memory_mib for group in groups),
        max_job_count=MANY_JOBS,
        max_tasks_per_node=max(base.settings.max_tasks_per_node, *(group.cpus for group in groups)),
        gres_names=tuple(dict.fromkeys((*base.settings.gres_names, "gpu"))),
    )
    return _machine(
        f"{name} with {policy}" if policy else name,
        config,
        ApplyConfig(settings, tuple(spec for spec, _ in specs), made),
    )


def plain(nodes: int, cpus: int, gpus: int = 0, memory_mib: int = 0, policy: Path | None = None) -> Machine:
    """Make equal nodes n1 to nN."""
    group = TraceNodes(f"n[1-{nodes}]" if nodes > 1 else "n1", cpus, memory_mib, gpus)
    return from_nodes([group], f"{nodes} nodes of {cpus} CPUs" + (f", {gpus} GPUs" if gpus else ""), policy)


def _machine(name: str, config: ClusterConfig, command: ApplyConfig) -> Machine:
    """Let the nodes be there without daemons that register them, and jobs without associations that nobody names."""
    settings = replace(command.settings, require_registration=False)
    if not config.association_file:
        settings = replace(settings, accounting_enforce=())
    accounts, _ = associations.command(config)
    return Machine(name, config, ApplyConfig(settings, command.nodes, command.partitions), accounts)
