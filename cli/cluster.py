"""A whole cluster on this host, without root or configuration: what `muster up` and `muster down` do.

Everything lies in one folder (`~/.muster` unless told otherwise): configuration, certificates, state, spools, logs,
sockets and `cluster.json`, which says how it was made. Started again, it finds its jobs and history. Several virtual
nodes are node agents of their own, each with its name, port, spool and configured sizes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from muster import auth
from muster.errors import InvalidInput, MusterError, Refused, Unavailable
from muster.local_call import LocalClient

SOURCE = Path(__file__).resolve().parent.parent
LONGEST_SOCKET_PATH = 90
"""A Unix socket's name holds 107 bytes, and the input and output socket appends `.io`."""
START_SECONDS = 30.0
STOP_SECONDS = 25.0
_STOP_POLL_SECONDS = 0.05
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_UNUSABLE = '"#%?\\'
"""Characters that mean something in a configuration value or in a database's URL."""


def default_folder() -> Path:
    """Give MUSTER_HOME, or `.muster` in the user's home."""
    given = os.environ.get("MUSTER_HOME")
    if given:
        return Path(given)
    return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir) / ".muster"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a cluster is made; kept in cluster.json."""

    name: str = "muster"
    nodes: int = 4
    cpus: int = 96
    memory_mib: int = 262144
    gpus: str = "h100:8"
    """`type:count`, or empty for none."""
    accounting: bool = True
    database: str = ""
    """URL of a database; empty: SQLite in the folder."""
    extra: str = ""
    """More lines for muster.conf."""
    cgroup: str = "off"
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def node_names(self) -> list[str]:
        """Names of the virtual nodes."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]


class Cluster:
    """The cluster of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        if len(os.fsencode(self.folder / "n" / "node100")) > LONGEST_SOCKET_PATH:
            raise InvalidInput(
                f"the folder {self.folder} has too long a name for sockets in it",
                "name a shorter one with --dir or MUSTER_HOME",
            )
        for character in str(self.folder):
            if character in _UNUSABLE or not character.isprintable():
                raise InvalidInput(
                    f"the folder {str(self.folder)!r} has {character!r} in its name, which muster.conf cannot hold",
                    "name another one with --dir or MUSTER_HOME",
                )

    @property
    def socket(self) -> Path:
        """The commands' socket."""
        return self.folder / "sock"

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "conf" / "muster.conf"

    def node_socket(self, node: str) -> Path:
        """The socket of a virtual node's agent."""
        return self.folder / "n" / node

    def log(self, daemon: str) -> Path:
        """A daemon's log file."""
        return self.folder / "log" / f"{daemon}.log"

    def plan(self) -> Plan | None:
        """Give how the cluster was made; None when there is none here.

        Raises:
            InvalidInput: cluster.json cannot be read; says why.
        """
        path = self.folder / "cluster.json"
        try:
            return Plan(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError) as error:
            raise InvalidInput(
                f"{path} is not what `muster up` wrote: {error}", "mend it, or name another folder with --dir"
            ) from error

    def make(self, plan: Plan) -> Plan:
        """Write configuration and certificates, unless the folder has a cluster already; give the plan in force.

        Certificates that are missing are made again in either case.
        """
        known = self.plan()
        if known is not None:
            self._certify(known)
            return known
        for name in ("conf", "state", "spool", "log", "run", "n"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "state").chmod(0o700)
        made = Plan(**{**asdict(plan), "ports": _free_ports(["ctld", "dbd", *plan.node_names])})
        self.config.write_text(self._configuration(made))
        self._certify(made)
        # Last, and whole or not at all: it is what says that there is a cluster here.
        written = self.folder / "cluster.json.new"
        written.write_text(json.dumps(asdict(made), indent=1) + "\n")
        written.replace(self.folder / "cluster.json")
        return made

    def _certify(self, plan: Plan) -> None:
        certificates = self.folder / "certs"
        auth.create_authority(certificates)
        auth.issue(certificates, "controller", "ctld")
        auth.issue(certificates, "accounting", "dbd")
        for node in plan.node_names:
            auth.issue(certificates, "compute", node)

    def _configuration(self, plan: Plan) -> str:
        # Quoted only where it must be: a path with blanks is rare, and the file is there to be read.
        quote = '"' if " " in str(self.folder) else ""
        lines = [
            "# Written by `muster up`; edit it and say `muster down --keep-jobs` and `muster up` to apply.",
            f"ClusterName={plan.name}",
            "SlurmctldHost=localhost(127.0.0.1)",
            f"SlurmctldPort={plan.ports['ctld']}",
            f"StateSaveLocation={quote}{self.folder}/state{quote}",
            f"SlurmdSpoolDir={quote}{self.folder}/spool/%n{quote}",
            "MaxArraySize=4000001",
            "MaxJobCount=2000000",
            "ReturnToService=2",
            "ProctrackType=proctrack/linuxproc",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            # Without a default a job that asks for no memory gets all of its nodes', and they take one job at a time.
            f"DefMemPerCPU={max(1, plan.memory_mib // plan.cpus)}",
        ]
        if plan.accounting:
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={plan.ports['dbd']}",
            ]
        gres = ""
        if plan.gpus:
            lines.append("GresTypes=gpu")
            gres = f" Gres=gpu:{plan.gpus}"
        lines += [line for line in plan.extra.splitlines() if line.strip() and not line.startswith("PartitionName=")]
        names = f"node[1-{plan.nodes}]" if plan.nodes > 1 else "node1"
        first = plan.ports["node1"]
        ports = f"{first}-{first + plan.nodes - 1}" if plan.nodes > 1 else str(first)
        lines.append(
            f"NodeName={names} NodeHostname={os.uname().nodename} NodeAddr=127.0.0.1 Port={ports} "
            f"CPUs={plan.cpus} RealMemory={plan.memory_mib}{gres}"
        )
        partitions = [line for line in plan.extra.splitlines() if line.startswith("PartitionName=")]
        lines += partitions or ["PartitionName=gpu Default=YES Nodes=ALL MaxTime=UNLIMITED State=UP"]
        return "\n".join(lines) + "\n"

    # Daemons.

    def daemons(self, plan: Plan) -> list[str]:
        """Names of the daemons, in the order in which they are started."""
        return ["ctld", *(["dbd"] if plan.accounting else []), *plan.node_names]

    def command(self, daemon: str, plan: Plan) -> list[str]:
        """Give the command line of a daemon."""
        folder, ports = self.folder, plan.ports
        python = [sys.executable, "-m"]
        certificates = ["--certificates", str(folder / "certs"), "--log", str(self.log(daemon))]
        if daemon == "ctld":
            return [
                *python, "ctld", "--config", str(self.config), "--socket", str(self.socket),
                "--listen", f"127.0.0.1:{ports['ctld']}", *certificates,
            ]  # fmt: skip
        controller = ["--controller", f"127.0.0.1:{ports['ctld']}"]
        if daemon == "dbd":
            database = plan.database or f"sqlite:///{folder}/accounting.db"
            return [
                *python, "dbd", "--database", database, "--listen", f"127.0.0.1:{ports['dbd']}", *controller,
                *certificates,
            ]  # fmt: skip
        return [
            *python, "noded", "--name", daemon, *controller, "--spool", str(folder / "spool" / daemon),
            "--socket", str(self.node_socket(daemon)), "--addr", "127.0.0.1", "--port", str(ports[daemon]),
            "--cpus", str(plan.cpus), "--sockets", "1", "--cores", str(plan.cpus), "--threads", "1",
            "--memory", str(plan.memory_mib), *(["--gpus", plan.gpus] if plan.gpus else []),
            "--config", str(self.config), "--cgroup", plan.cgroup, *certificates,
        ]  # fmt: skip

    def start(self, daemon: str, plan: Plan) -> int:
        """Start one daemon unless it runs, and give its pid. It is not waited for."""
        pid = self.pid(daemon)
        if pid:
            return pid
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "SBATCH_", "MUSTER_")) or name == "MUSTER_HOME"
        }
        (self.folder / "spool" / daemon).mkdir(parents=True, exist_ok=True)
        with self.log(daemon).open("ab") as log:
            process = subprocess.Popen(
                self.command(daemon, plan),
                cwd=SOURCE,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / "run" / f"{daemon}.pid").write_text(f"{process.pid} {_birth(process.pid)}\n")
        # The daemon outlives this command; the kernel hands it to init.
        process.returncode = 0
        return process.pid

    def pid(self, daemon: str) -> int:
        """Give a daemon's pid; 0 when it does not run (a pid that now is another process's does not count)."""
        try:
            words = (self.folder / "run" / f"{daemon}.pid").read_text().split()
        except FileNotFoundError:
            return 0
        if len(words) != 2 or not words[0].isdecimal():
            return 0
        pid, birth = int(words[0]), words[1]
        return pid if birth != "0" and _birth(pid) == birth else 0

    def stop(self, daemon: str, *, seconds: float = STOP_SECONDS) -> bool:
        """Ask a daemon to end and wait for it; False when it had to be killed."""
        pid = self.pid(daemon)
        if not pid:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if self._gone(daemon, pid, seconds):
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # Waited for as well: what is started next must not take it for running.
        self._gone(daemon, pid, STOP_SECONDS)
        return False

    def _gone(self, daemon: str, pid: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.pid(daemon):
            if time.monotonic() > deadline:
                return False
            time.sleep(_STOP_POLL_SECONDS)
        _reap(pid)
        return True

    def client(self) -> LocalClient:
        """Give a client of the controller's socket."""
        return LocalClient(self.socket)

    def answers(self) -> bool:
        """Tell whether the controller answers calls."""
        try:
            self.client().call("GET", "/v1/ping")
        except Unavailable:
            return False
        return True

    def up(self, plan: Plan, say: Callable[[str], None]) -> Plan:
        """Make what is missing, start what does not run, and return when every node is in the queue's service.

        Raises:
            Unavailable: a daemon did not come up in time; says which, and where its log is.
        """
        with self._alone():
            return self._up(self.make(plan), say)

    def _up(self, plan: Plan, say: Callable[[str], None]) -> Plan:
        say(f"controller: {self.socket}")
        self.start("ctld", plan)
        self._await("ctld", self.answers)
        if plan.accounting:
            say(f"accounting: {plan.database or self.folder / 'accounting.db'}")
            self.start("dbd", plan)
        for node in plan.node_names:
            self.start(node, plan)
        say(f"nodes: {plan.nodes} virtual, each {plan.cpus} CPUs, {plan.memory_mib} MiB" + (
            f", gpu:{plan.gpus}" if plan.gpus else ""
        ))  # fmt: skip
        for node in plan.node_names:
            self._await(node, lambda node=node: self._registered(node))  # type: ignore[misc]
        if plan.accounting:
            self._await("dbd", self._follows)
        return plan

    def down(self, say: Callable[[str], None], *, keep_jobs: bool = False) -> None:
        """Cancel what runs (unless told not to), and stop all daemons."""
        plan = self.plan()
        if plan is None:
            raise Refused(f"there is no cluster in {self.folder}", "`muster up` makes one")
        with self._alone():
            self._down(plan, say, keep_jobs)

    def _down(self, plan: Plan, say: Callable[[str], None], keep_jobs: bool) -> None:
        if not keep_jobs and self.pid("ctld"):
            self._cancel_all(say)
        for daemon in reversed(self.daemons(plan)):
            if self.pid(daemon):
                gentle = self.stop(daemon)
                say(f"{daemon}: stopped" if gentle else f"{daemon}: killed (it did not stop in {STOP_SECONDS:.0f} s)")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep a second `muster up` or `down` of this folder out: two would start each daemon twice."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("wb")  # closed in the daemons: Popen passes no descriptor on
        except OSError as error:
            raise InvalidInput(
                f"cannot write in the folder {self.folder}: {error.strerror}",
                "name another one with --dir or MUSTER_HOME",
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Refused(
                    f"another `muster up` or `muster down` is at work in {self.folder}", "wait until it has ended"
                ) from error
            yield

    def _cancel_all(self, say: Callable[[str], None]) -> None:
        try:
            running = self._jobs()
            if running:
                say(f"cancelling {running} job{'s' if running > 1 else ''}")
                self.client().call("POST", "/v1/jobs/cancel", {"state": "PENDING"})
                self.client().call("POST", "/v1/jobs/cancel", {"state": "RUNNING"})
            deadline = time.monotonic() + STOP_SECONDS
            while self._jobs() and time.monotonic() < deadline:
                time.sleep(_STOP_POLL_SECONDS)
        except MusterError as error:
            say(f"jobs cannot be cancelled: {error.sentence}")

    def _jobs(self) -> int:
        return len(self.client().call("GET", "/v1/jobs?fields=job_id")["rows"])

    def _await(self, daemon: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if not self.pid(daemon):
                raise Unavailable(
                    f"{daemon} ended while it was starting: {self._last_line(daemon)}", f"log: {self.log(daemon)}"
                )
            if time.monotonic() > deadline:
                raise Unavailable(f"{daemon} was not ready in {START_SECONDS:.0f} s", f"log: {self.log(daemon)}")
            time.sleep(_STOP_POLL_SECONDS)

    def _last_line(self, daemon: str) -> str:
        try:
            text = self.log(daemon).read_text(errors="replace")
        except OSError:
            text = ""
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "no word in its log"

    def _registered(self, node: str) -> bool:
        found = self.client().call("GET", "/v1/status")
        return any(one["name"] == node and one["connected"] for one in found["nodes"])

    def _follows(self) -> bool:
        return bool(self.client().call("GET", "/v1/status")["accounting"])


def _birth(pid: int) -> str:
    """Give the kernel's start time of a process, which with its pid names it for good; "0" when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "0"
    fields = stat.rpartition(")")[2].split()
    return "0" if fields[0] == "Z" else fields[19]


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _free_ports(names: list[str]) -> dict[str, int]:
    """Choose ports of the loopback that are free now, in a row.

    Below the kernel's ephemeral ports: one of those may be some connection's when the daemon comes back for it.
    """
    for attempt in range(200):
        base = _FIRST_PORT + (os.getpid() * 131 + attempt * 977) % (_LAST_PORT - _FIRST_PORT - len(names))
        with contextlib.ExitStack() as tried:
            try:
                return {name: _bind(tried, base + place) for place, name in enumerate(names)}
            except OSError:
                continue
    raise Unavailable(f"no {len(names)} free ports in a row on the loopback")


def _bind(held: contextlib.ExitStack, port: int) -> int:
    listening = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    listening.bind(("127.0.0.1", port))
    number: int = listening.getsockname()[1]
    return number
