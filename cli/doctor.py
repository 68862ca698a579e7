"""What `muster doctor` looks at: each check says what it found and, for a fault, the cure."""

from __future__ import annotations

import os
import shlex
import shutil
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509

from cli.cluster import Cluster, Plan
from muster.client import socket_path
from muster.config.load import load
from muster.errors import MusterError

SKEW_MS = 5_000
LEAST_FREE_BYTES = 1 << 30
LEAST_DAYS = 30


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    what: str
    fault: bool = False
    cure: str = ""


def examine(cluster: Cluster) -> Iterator[Check]:
    """Give the findings one by one, from the host to the jobs."""
    yield _python()
    yield from _commands()
    plan = cluster.plan()
    if plan is None:
        yield Check(f"no cluster in {cluster.folder}", True, "`muster up` makes one; --dir names another folder")
        return
    yield _config(cluster)
    yield from _certificates(cluster, plan)
    yield _disk(cluster)
    yield from _daemons(cluster, plan)
    if cluster.pid("ctld"):
        yield _socket(cluster)
        yield from _controller(cluster, plan)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(f"Python {version}, OpenSSL {ssl.OPENSSL_VERSION.split()[1]}")


def _commands() -> Iterator[Check]:
    own = Path(sys.executable).parent
    for name in ("sbatch", "srun", "squeue", "scontrol"):
        found = shutil.which(name)
        if not (own / name).exists():
            yield Check(f"{own / name} is missing", True, "`make setup` writes the commands")
        elif found is None:
            yield Check(f"{name} is not on PATH", True, f"export PATH={shlex.quote(str(own))}:$PATH")
        elif os.path.realpath(found) != os.path.realpath(own / name):
            yield Check(
                f"{name} on PATH is {found}, not Muster's",
                True,
                f"put {own} first: export PATH={shlex.quote(str(own))}:$PATH",
            )
        else:
            yield Check(f"{name} on PATH is Muster's")


def _config(cluster: Cluster) -> Check:
    try:
        config = load(cluster.config)
    except MusterError as error:
        return Check(f"the configuration cannot be read: {error.sentence}", True, error.hint)
    unused = ", ".join(key for key, _, _ in config.without_effect)
    return Check(f"{cluster.config} is read" + (f"; keys without effect here: {unused}" if unused else ""))


def _certificates(cluster: Cluster, plan: Plan) -> Iterator[Check]:
    now = time.time()
    good = True
    for daemon in cluster.daemons(plan):
        role = {"ctld": "controller", "dbd": "accounting"}.get(daemon, "compute")
        path = cluster.folder / "certs" / f"{role}-{daemon}.crt"
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError) as error:
            good = False
            yield Check(
                f"the certificate {path} cannot be read: {error}",
                True,
                f"`muster down --keep-jobs`, remove {path.parent}, then `muster up` makes new ones",
            )
            continue
        days = (certificate.not_valid_after_utc.timestamp() - now) / 86400
        if days < LEAST_DAYS:
            good = False
            yield Check(
                f"{path.name} ends in {days:.0f} days",
                True,
                f"`muster down --keep-jobs`, remove {path} and its key, then `muster up` makes new ones",
            )
    for key in sorted((cluster.folder / "certs").glob("*.key")):
        if key.stat().st_mode & 0o077:
            good = False
            yield Check(f"{key} can be read by others", True, f"chmod 600 {key}")
    if good:
        yield Check("certificates are there and their keys private")


def _disk(cluster: Cluster) -> Check:
    free = shutil.disk_usage(cluster.folder).free
    what = f"{free / (1 << 30):.1f} GiB free for the state in {cluster.folder}"
    if free < LEAST_FREE_BYTES:
        return Check(what, True, "submissions are refused once 64 MiB are left: make room")
    return Check(what)


def _daemons(cluster: Cluster, plan: Plan) -> Iterator[Check]:
    for daemon in cluster.daemons(plan):
        pid = cluster.pid(daemon)
        if pid:
            yield Check(f"{daemon} runs, pid {pid}")
        else:
            yield Check(f"{daemon} does not run", True, f"`muster up` starts it; its log is {cluster.log(daemon)}")


def _socket(cluster: Cluster) -> Check:
    path = socket_path()
    if os.path.realpath(path) != os.path.realpath(cluster.socket):
        return Check(f"commands here speak to {path}", True, f"export MUSTER_SOCKET={shlex.quote(str(cluster.socket))}")
    return Check(f"commands here speak to {path}")


def _controller(cluster: Cluster, plan: Plan) -> Iterator[Check]:
    try:
        found: dict[str, Any] = cluster.client().call("GET", "/v1/status")
    except MusterError as error:
        yield Check(f"the controller does not answer: {error.sentence}", True, f"its log is {cluster.log('ctld')}")
        return
    yield Check(f"the controller answers: event {found['last_event']}, {found['running']} jobs run")
    for node in found["nodes"]:
        yield from _node(node, cluster, plan)
    if found["accounting_configured"] and not found["accounting"]:
        yield Check("dbd does not follow the controller", True, f"its log is {cluster.log('dbd')}")


def _node(node: dict[str, Any], cluster: Cluster, plan: Plan) -> Iterator[Check]:
    name = node["name"]
    if not node["connected"] and name not in plan.node_names:
        yield Check(
            f"{name} is not connected, and is none of the {plan.nodes} nodes that `muster up` starts here",
            True,
            f"start its agent (python -m noded --name {name} ...), take it out of {cluster.config}, "
            "or make another cluster with `muster up --dir FOLDER --nodes N`",
        )
    elif not node["connected"]:
        yield Check(f"{name} is not connected", True, f"its log is {cluster.log(name)}; `muster up` starts it")
    elif abs(node["skew_ms"]) > SKEW_MS:
        way = "ahead" if node["skew_ms"] > 0 else "behind"
        yield Check(f"{name}: its clock is {abs(node['skew_ms']) / 1000:.0f} s {way}", True, "set the time there")
    elif node["down"] or node["drain"]:
        word = "down" if node["down"] else "drained"
        yield Check(f"{name} is {word}: {node['reason']}", True, f"scontrol update nodename={name} state=resume")
    else:
        off = "; ".join(node["limits_off"])
        yield Check(f"{name} is connected" + (f" ({off})" if off else ""))
