"""What devices a node has, from its Gres= and the lines of gres.conf: which index each has, and what it is near to.

slurm.conf says how many there are, gres.conf what they are like. What gres.conf names beyond that number is not used.
"""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.cluster import Device
from ctld.core.devices import SHARING
from muster.config.records import GresLine, NodeConfig
from muster.hostlist import natural_key


def devices_of(node: NodeConfig, lines: tuple[GresLine, ...]) -> tuple[tuple[str, ...], tuple[Device, ...]]:
    """Give the type of each GPU by index, and everything else (see `NodeSpec.devices`)."""
    gpus, groups = _gpus(node, [line for line in lines if line.name == "gpu"])
    found = list(groups)
    for name in dict.fromkeys(gres.name for gres in node.gres if gres.name != "gpu"):
        mine = [line for line in lines if line.name == name]
        total = sum(gres.count for gres in node.gres if gres.name == name)
        if name in SHARING:
            found += _parts(name, total, mine, gpus, groups)
        else:
            found += _others(node, name, mine)
    return gpus, tuple(found)


def _gpus(node: NodeConfig, lines: list[GresLine]) -> tuple[tuple[str, ...], list[Device]]:
    """GPUs by index: as their files sort, those without a file behind them in the order of slurm.conf."""
    wanted = {gres.type: gres.count for gres in node.gres if gres.name == "gpu"}
    singles = [one for line in lines for one in _singles(line)]
    singles.sort(key=lambda one: natural_key(one.files[0]) if one.files else ())
    left = dict(wanted)
    kept: list[Device] = []
    for one in singles:
        # slurm.conf may leave out the type; then any will do, and the device keeps its own.
        kind = one.type if one.type in left else "" if "" in left else None
        if kind is not None and left[kind]:
            left[kind] -= 1
            kept.append(one)
    types = [one.type for one in kept]
    types += [kind for kind, count in left.items() for _ in range(count)]
    placed = [replace(one, first=index) for index, one in enumerate(kept)]
    return tuple(types), [one for one in _joined(placed) if one.cores or one.links or one.files]


def _singles(line: GresLine) -> list[Device]:
    """Give a line's devices one by one."""
    files = line.files or line.multiple_files
    count = len(line.files) or (1 if line.multiple_files else line.count or 1)
    cores = ranges.from_ints(line.cores)
    each: list[tuple[str, ...]] = [(file,) for file in line.files] or [files] * count
    return [Device("gpu", 1, line.type, cores=cores, links=line.links, files=one) for one in each]


def _joined(singles: list[Device]) -> list[Device]:
    """Put neighbours that differ in nothing but their index and file into one group."""
    found: list[Device] = []
    for one in singles:
        last = found[-1] if found else None
        if (
            last is not None
            and (last.type, last.cores) == (one.type, one.cores)
            and last.first + last.count == one.first
            and len(last.files) == last.count * len(one.files)
            and not last.links
            and not one.links
        ):
            found[-1] = replace(last, count=last.count + 1, files=(*last.files, *one.files))
        else:
            found.append(one)
    return found


def _parts(name: str, total: int, lines: list[GresLine], gpus: tuple[str, ...], groups: list[Device]) -> list[Device]:
    """Shards and their like: so many on the GPUs that a line names, or the node's number split over all GPUs."""
    by_file = {
        file: group.first + at * group.count // len(group.files)
        for group in groups
        for at, file in enumerate(group.files)
    }
    shares = [0] * len(gpus)
    for line in lines:
        files = [file for file in line.files if file in by_file]
        for rank, file in enumerate(files):
            each, odd = divmod(line.count or 0, len(files))
            shares[by_file[file]] = each + (1 if rank < odd else 0)
    if not any(shares) and gpus:
        each, odd = divmod(total, len(gpus))
        shares = [each + (1 if gpu < odd else 0) for gpu in range(len(gpus))]
    found: list[Device] = []
    for gpu, each in enumerate(shares):
        last = found[-1] if found else None
        if not each:
            continue
        if last is not None and (last.type, last.each) == (gpus[gpu], each) and last.first + last.count == gpu:
            found[-1] = replace(last, count=last.count + 1)
        else:
            found.append(Device(name, 1, gpus[gpu], first=gpu, each=each))
    return found


def _others(node: NodeConfig, name: str, lines: list[GresLine]) -> list[Device]:
    """Devices of any other name: all with indexes where gres.conf names files for some, else counted."""
    kinds = [gres for gres in node.gres if gres.name == name]
    types = {"", *(gres.type for gres in kinds)}
    told = [line for line in lines if line.files and "CountOnly" not in line.flags and line.type in types]
    unused = [line.files for line in told]
    found: list[Device] = []
    index = 0
    for gres in kinds:
        left = gres.count
        for place, line in enumerate(told):
            files = unused[place][:left] if line.type in ("", gres.type) else ()
            if files:
                unused[place] = unused[place][len(files) :]
                found.append(
                    Device(
                        name, len(files), gres.type, index, cores=ranges.from_ints(line.cores), links=line.links,
                        files=files, no_consume=gres.no_consume,
                    )
                )  # fmt: skip
                index += len(files)
                left -= len(files)
        if left:
            found.append(Device(name, left, gres.type, index if told else -1, no_consume=gres.no_consume))
            index += left
    return found
