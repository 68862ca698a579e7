"""A node as users see it: its state in Slurm's words, what is used of it, and what it says of itself.

The state shown is derived each time: from the record (down, drained), from the jobs on it, and from its link.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ctld.core import ranges, record
from ctld.core.cluster import Device, Node
from ctld.core.devices import in_parts, size
from ctld.core.free import cpus_per_core, reserved_cores, selectable_cpus, selectable_memory
from ctld.core.jobids import range_text
from ctld.core.state import State
from ctld.services.views.jobs import Value, used_gpus
from muster.ids import UnixTime
from muster.states import JobState
from muster.tres import format_tres

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctld.loops.links import Links

Field = Callable[["NodeView", Node], Value]

# Base states, numbered as Slurm numbers them: sinfo sorts by this number, flags above it.
UNKNOWN, DOWN, IDLE, ALLOCATED, ERROR, MIXED, FUTURE = range(7)
BASE_WORDS = ("UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE")

# Flags, in the order of the complete form, lowest bit first.
COMPLETING, DRAIN, INVALID, FAIL, MAINT, RESERVED, NO_RESPOND, PLANNED = (1 << place for place in range(8))
FLAG_WORDS = (
    (COMPLETING, "COMPLETING"),
    (DRAIN, "DRAIN"),
    (INVALID, "INVALID_REG"),
    (FAIL, "FAIL"),
    (MAINT, "MAINTENANCE"),
    (RESERVED, "RESERVED"),
    (NO_RESPOND, "NOT_RESPONDING"),
    (PLANNED, "PLANNED"),
)
# Bits of Slurm's own numbering, which sinfo's order goes by.
_SORT_BITS = (
    (DRAIN, 0x200),
    (COMPLETING, 0x400),
    (NO_RESPOND, 0x800),
    (FAIL, 0x2000),
    (INVALID, 0x1000000),
    (RESERVED, 0x20),
    (MAINT, 0x8000),
)
_RUNNING, _SUSPENDED = int(JobState.RUNNING), int(JobState.SUSPENDED)


class NodeView:
    """Looks at nodes at one moment.

    Args:
        planned: indexes of nodes that the scheduler keeps for a job that waits.
    """

    def __init__(self, state: State, links: Links, at: UnixTime, planned: Collection[int] = ()) -> None:
        self.state = state
        self.links = links
        self.at = at
        self.planned = frozenset(planned)
        self.completing = frozenset(node for job_id in state.completing for node in state.jobs[job_id].completing)
        self.reservations: dict[int, str] = {}
        """Node -> the reservation whose time it is there, the last one made where several lie over each other."""
        self.maintenance: set[int] = set()
        for one in state.reservations.values():
            if one.is_active(at):
                self.reservations.update(dict.fromkeys(one.nodes, one.name))
                if one.has("MAINT"):
                    self.maintenance.update(one.nodes)
        self._seen: Node | None = None
        self._status = (UNKNOWN, 0)

    def status(self, node: Node) -> tuple[int, int]:
        """Base state and flags; several fields of one row ask, the answer is made once."""
        if self._seen is not node:
            self._status = self._judge(node)
            self._seen = node
        return self._status

    def allocated_cpus(self, node: Node) -> int:
        """CPUs that jobs hold."""
        return max(0, selectable_cpus(node.spec) - int(self.state.free.cpus[node.index]))

    def _judge(self, node: Node) -> tuple[int, int]:
        if node.spec.state == "FUTURE":
            return FUTURE, 0
        index = node.index
        flags = 0
        if index in self.completing:
            flags |= COMPLETING
        if node.drain:
            flags |= DRAIN
        if node.invalid:
            flags |= INVALID
        if node.fail:
            flags |= FAIL
        if index in self.reservations:
            flags |= RESERVED
        if index in self.maintenance:
            flags |= MAINT
        if index not in self.links.up:
            flags |= NO_RESPOND
        if node.down:
            return DOWN, flags
        state = self.state
        if any(_RUNNING <= state.jobs[job_id].state <= _SUSPENDED for job_id in state.node_jobs[index]):
            base = ALLOCATED if state.free.cpus[index] <= 0 else MIXED
        elif node.facts is None and state.settings.require_registration:
            base = UNKNOWN
        else:
            base = IDLE
        if index in self.planned and base in (IDLE, MIXED):
            flags |= PLANNED
        return base, flags


def state_words(base: int, flags: int) -> tuple[str, str]:
    """Give the single word in its long and compact form: `DRAINED*`, `DRAIN*`."""
    if flags & INVALID:
        return "INVAL", "INVAL"
    busy = base in (ALLOCATED, MIXED)
    star = "*" if flags & NO_RESPOND else ""
    if flags & MAINT:
        if not (flags & DRAIN or busy or base == DOWN):
            return f"MAINT{star}", f"MAINT{star}"
        star = "$"
    if flags & DRAIN:
        words = ("DRAINING", "DRNG") if busy or flags & COMPLETING else ("DRAINED", "DRAIN")
    elif flags & FAIL:
        words = ("FAILING", "FAILG") if busy or flags & COMPLETING else ("FAIL", "FAIL")
    elif base == DOWN:
        words = ("DOWN", "DOWN")
    elif base == ALLOCATED:
        words = ("ALLOCATED", "ALLOC")
        star = star or ("+" if flags & COMPLETING else "")
    elif flags & COMPLETING:
        words = ("COMPLETING", "COMP")
    elif base == IDLE:
        words = ("IDLE", "IDLE")
        if not star and flags & (RESERVED | PLANNED):
            words = ("RESERVED", "RESV") if flags & RESERVED else ("PLANNED", "PLND")
    elif base == MIXED:
        words = ("MIXED", "MIX")
        star = star or ("-" if flags & PLANNED else "")
    elif base == FUTURE:
        words = ("FUTURE", "FUTR")
    else:
        words = ("UNKNOWN", "UNK")
    return words[0] + star, words[1] + star


def complete_word(base: int, flags: int) -> str:
    """Give base and all flags: `IDLE+DRAIN+NOT_RESPONDING`."""
    return "+".join((BASE_WORDS[base], *(word for bit, word in FLAG_WORDS if flags & bit)))


def sort_number(base: int, flags: int) -> int:
    """Give the number that sinfo sorts states by."""
    return base | sum(number for bit, number in _SORT_BITS if flags & bit)


def unusable(base: int, flags: int) -> bool:
    """Tell whether idle CPUs of such a node count as "other"."""
    return base in (DOWN, UNKNOWN, FUTURE) or bool(flags & (DRAIN | FAIL | INVALID))


def gres_text(types: tuple[str, ...]) -> str:
    """GPUs of a node: `gpu:8`, `gpu:a100:4,gpu:h100:4`."""
    counts: dict[str, int] = {}
    for kind in types:
        counts[kind] = counts.get(kind, 0) + 1
    return ",".join(f"gpu{':' + kind if kind else ''}:{count}" for kind, count in counts.items())


def _others_text(devices: tuple[Device, ...]) -> str:
    """Other generic resources of a node: `shard:a100:32`, `nic:2`, `bandwidth:no_consume:4`."""
    counts: dict[str, int] = {}
    for one in devices:
        if one.name != "gpu":
            head = f"{one.name}:{one.type}" if one.type else one.name
            head += ":no_consume" if one.no_consume else ""
            counts[head] = counts.get(head, 0) + size(one)
    return ",".join(f"{head}:{count}" for head, count in counts.items())


def _gres(view: NodeView, node: Node) -> Value:
    texts = (gres_text(node.spec.gpus), _others_text(node.spec.devices))
    return ",".join(text for text in texts if text) or None


def configured_tres(node: Node, *, with_node: bool = False) -> dict[str, int]:
    """What a node has, as amounts: CfgTRES=."""
    spec = node.spec
    cpus = selectable_cpus(spec)
    amounts = {"cpu": cpus, "mem": selectable_memory(spec), "billing": cpus, "gres/gpu": len(spec.gpus)}
    for one in spec.devices:
        if one.name != "gpu":
            for name in (f"gres/{one.name}", f"gres/{one.name}:{one.type}") if one.type else (f"gres/{one.name}",):
                amounts[name] = amounts.get(name, 0) + size(one)
    if with_node:
        amounts["node"] = 1
    for kind in spec.gpus:
        if kind:
            amounts[f"gres/gpu:{kind}"] = amounts.get(f"gres/gpu:{kind}", 0) + 1
    return amounts


def _allocated_tres(view: NodeView, node: Node) -> Value:
    state = view.state
    shares = [
        share
        for job_id in state.node_jobs[node.index]
        for share in getattr(state.jobs[job_id].alloc, "shares", ())
        if share.node == node.index
    ]
    amounts = record.tres(state, shares)
    for absent in ("node", "billing"):
        amounts.pop(absent, None)
    if not state.settings.memory_consumable:
        amounts.pop("mem", None)
    return format_tres(amounts)


def _taken_gpus(view: NodeView, node: Node) -> tuple[int, ...]:
    every = (1 << len(node.spec.gpus)) - 1
    free = view.state.free
    parts = sum(
        1 << gpu for gpu in range(len(node.spec.gpus)) if in_parts(free.more[node.index], free.whole[node.index], gpu)
    )
    return ranges.from_bitmap(every & ~free.gpus[node.index] & ~parts)


def _gres_used(view: NodeView, node: Node) -> Value:
    """`gpu:a100:2(IDX:0-1)`; all types are named, with 0 and IDX:N/A where none is used."""
    types = node.spec.gpus
    others = _others_used(view, node)
    if not types:
        return others or None
    used = used_gpus(types, _taken_gpus(view, node)).split("),")
    texts = [text if text.endswith(")") or not text else f"{text})" for text in used]
    by_head = {text.partition("(")[0].rpartition(":")[0]: text for text in texts if text}
    heads = [f"gpu:{kind}" if kind else "gpu" for kind in dict.fromkeys(types)]
    gpus = ",".join(by_head.get(head, f"{head}:0(IDX:N/A)") for head in heads)
    return f"{gpus},{others}" if others else gpus


def _others_used(view: NodeView, node: Node) -> str:
    """`nic:1(IDX:0),shard:a100:3(3/8,0/8)`: of what is told apart the indexes, of shards how many on each GPU."""
    left, whole = view.state.free.more[node.index], view.state.free.whole[node.index]
    texts: dict[str, list[tuple[Device, int]]] = {}
    for one in node.spec.devices:
        if one.name == "gpu" or one.no_consume:
            continue
        head = f"{one.name}:{one.type}" if one.type else one.name
        mine = texts.setdefault(head, [])
        if one.each:
            for gpu in range(one.first, one.first + one.count):
                mine.append((one, whole[f"{one.name}@{gpu}"] - left[f"{one.name}@{gpu}"]))
        elif one.first >= 0:
            mine.append((one, ((1 << one.count) - 1) << one.first & ~left[one.name]))
        else:
            mine.append((one, one.count - left[f"{one.name}:{one.type}"]))
    return ",".join(f"{head}:{_use_text(parts)}" for head, parts in texts.items())


def _use_text(parts: list[tuple[Device, int]]) -> str:
    first = parts[0][0]
    if first.each:
        return f"{sum(used for _, used in parts)}({','.join(f'{used}/{one.each}' for one, used in parts)})"
    if first.first < 0:
        return str(sum(used for _, used in parts))
    bits = sum(used for _, used in parts)
    return f"{bits.bit_count()}(IDX:{range_text(ranges.from_bitmap(bits)) or 'N/A'})"


def _load(view: NodeView, node: Node) -> Value:
    pulse = view.links.pulses.get(node.index)
    return pulse.load_x100 if pulse is not None and pulse.load_x100 >= 0 else None


def _free_memory(view: NodeView, node: Node) -> Value:
    pulse = view.links.pulses.get(node.index)
    return pulse.free_memory_mib if pulse is not None and pulse.free_memory_mib >= 0 else None


def _allocated_memory(view: NodeView, node: Node) -> Value:
    if not view.state.settings.memory_consumable:
        return 0
    return max(0, selectable_memory(node.spec) - int(view.state.free.memory[node.index]))


def _idle_cpus(view: NodeView, node: Node) -> int:
    return selectable_cpus(node.spec) - view.allocated_cpus(node)


def _partitions(view: NodeView, node: Node) -> Value:
    names = [name for name, partition in view.state.partitions.items() if node.index in _members(partition.nodes)]
    return ",".join(names)


_members_of: dict[tuple[int, ...], frozenset[int]] = {}


def _members(nodes: tuple[int, ...]) -> frozenset[int]:
    found = _members_of.get(nodes)
    if found is None:
        if len(_members_of) > 256:
            _members_of.clear()
        found = _members_of[nodes] = frozenset(nodes)
    return found


def _address(view: NodeView, node: Node) -> Value:
    facts = node.facts
    return node.spec.addr or (facts.addr if facts is not None else "") or node.spec.name


def _host(view: NodeView, node: Node) -> Value:
    facts = node.facts
    return (facts.hostname if facts is not None else "") or node.spec.hostname or node.spec.name


def _last_busy(view: NodeView, node: Node) -> Value:
    """A node that works was busy just now."""
    base, flags = view.status(node)
    return view.at if base in (ALLOCATED, MIXED) or flags & COMPLETING else node.last_busy_at


def _owner(view: NodeView, node: Node) -> Value:
    owner = view.state.free.owner[node.index]
    return owner if owner >= 0 else None


def _system_cpus(view: NodeView, node: Node) -> Value:
    """CPUs kept for the system: `2-3,7`."""
    threads = cpus_per_core(node.spec)
    cores = ranges.numbers(ranges.from_bitmap(reserved_cores(node.spec)))
    flat = ranges.from_ints(core * threads + thread for core in cores for thread in range(threads))
    return range_text(flat) or None


FIELDS: dict[str, Field] = {
    "address": _address,
    "agent_started_at": lambda view, node: node.facts.agent_started_at if node.facts is not None else 0,
    "allocated_cpus": lambda view, node: view.allocated_cpus(node),
    "allocated_memory": _allocated_memory,
    "allocated_tres": _allocated_tres,
    "arch": lambda view, node: node.facts.arch if node.facts is not None else "",
    "boards": lambda view, node: node.spec.boards,
    "boot_at": lambda view, node: node.facts.boot_at if node.facts is not None else 0,
    "configured_tres": lambda view, node: format_tres(configured_tres(node)),
    "cores": lambda view, node: node.spec.cores_per_socket,
    "core_spec": lambda view, node: reserved_cores(node.spec).bit_count(),
    "cpu_spec_list": _system_cpus,
    "cpus": lambda view, node: node.spec.cpus,
    "effective_cpus": lambda view, node: selectable_cpus(node.spec),
    "memory_spec": lambda view, node: node.spec.memory_spec_mib,
    "features": lambda view, node: ",".join(node.spec.features) or None,
    "free_memory": _free_memory,
    "gres": _gres,
    "gres_used": _gres_used,
    "host": _host,
    "idle_cpus": lambda view, node: 0 if unusable(*view.status(node)) else _idle_cpus(view, node),
    "index": lambda view, node: node.index,
    "last_busy_at": _last_busy,
    "load": _load,
    "memory": lambda view, node: node.spec.memory_mib,
    "name": lambda view, node: node.spec.name,
    "os": lambda view, node: node.facts.os if node.facts is not None else "",
    "other_cpus": lambda view, node: _idle_cpus(view, node) if unusable(*view.status(node)) else 0,
    "owner": _owner,
    "partitions": _partitions,
    "port": lambda view, node: (node.facts.port if node.facts is not None else 0) or node.spec.port,
    "reason": lambda view, node: node.reason or None,
    "reason_at": lambda view, node: node.reason_at if node.reason else 0,
    "reason_uid": lambda view, node: node.reason_uid if node.reason else None,
    "reservation": lambda view, node: view.reservations.get(node.index),
    "responding": lambda view, node: int(node.index in view.links.up),
    "sockets": lambda view, node: node.spec.sockets,
    "state": lambda view, node: state_words(*view.status(node))[0],
    "state_base": lambda view, node: BASE_WORDS[view.status(node)[0]],
    "state_compact": lambda view, node: state_words(*view.status(node))[1],
    "state_complete": lambda view, node: complete_word(*view.status(node)),
    "state_sort": lambda view, node: sort_number(*view.status(node)),
    "threads": lambda view, node: node.spec.threads_per_core,
    "tmp": lambda view, node: node.spec.tmp_mib,
    "version": lambda view, node: node.facts.version if node.facts is not None else "",
    "weight": lambda view, node: node.spec.weight,
}
"""Field name -> what gives it (`GET /v1/nodes?fields=name,state`)."""
