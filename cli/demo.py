"""`make demo`: a cluster of virtual nodes, the example training job on it, and what one sees of both."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from cli.cluster import SOURCE, Cluster, Plan, default_folder
from muster.errors import MusterError, Refused, Unavailable

BIN = Path(sys.executable).parent
JOB_SECONDS = 90.0


class Demo:
    """Types the commands that a user would type, and shows what they answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder = cluster.folder / "demo"
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))},
            "PATH": f"{BIN}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "MUSTER_SOCKET": str(cluster.socket),
        }

    def run(self) -> None:
        """Show everything; raises MusterError where something is not as it should be."""
        shutil.copytree(SOURCE / "etc" / "examples", self._folder, dirs_exist_ok=True)
        self._title("the nodes")
        self._type("sinfo")
        self._title("a training job on two nodes with eight GPUs each: etc/examples/llm-pretrain.sbatch")
        job = self._type("sbatch", "llm-pretrain.sbatch").split()[-1]
        self._await_start(job)
        self._type("squeue")
        self._type("sinfo")
        self._await_end(job)
        self._title("what it wrote")
        output = self._folder / "logs" / f"llm-pretrain-{job}.out"
        # All 16 ranks write there; the first one tells the story.
        print(f"$ grep 'rank 0/' {output} | tail -n 8")
        print("\n".join([line for line in output.read_text().splitlines() if "rank 0/" in line][-8:]) + "\n")
        self._title("what the controller and accounting know of it")
        self._type("scontrol", "show", "job", job)
        self._type("sacct", "-j", job)
        state = self._quiet("sacct", "-j", job, "-X", "-n", "-P", "-o", "State").strip()
        if state != "COMPLETED":
            raise Unavailable(f"job {job} ended {state or 'without a record'}, not COMPLETED", f"see {output}")
        self._farewell()

    def _farewell(self) -> None:
        self._title("the cluster is up: go on")
        print(f"  export PATH={shlex.quote(str(BIN))}:$PATH")
        print(f"  export MUSTER_SOCKET={shlex.quote(str(self._cluster.socket))}   # not needed with the usual folder")
        print("  sbatch --wrap 'hostname'                # a job; its output goes to slurm-ID.out")
        print("  srun -N2 -n4 hostname                   # tasks on two nodes, their output here")
        print(f"  cd {shlex.quote(str(self._folder))} && sbatch sweep.sbatch   # an array of 200 members")
        print("  squeue; sinfo; sacct; scontrol show node node1")
        print("  muster status | doctor | down\n", flush=True)

    def _title(self, text: str) -> None:
        print(f"== {text}", flush=True)

    def _type(self, *argv: str) -> str:
        print(f"$ {' '.join(argv)}", flush=True)
        text = self._quiet(*argv)
        print(text, flush=True)
        return text

    def _quiet(self, *argv: str) -> str:
        done = subprocess.run(
            [str(BIN / argv[0]), *argv[1:]], cwd=self._folder, env=self._environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode or done.stderr:
            print(done.stderr, end="", file=sys.stderr, flush=True)
        if done.returncode:
            raise Unavailable(f"{argv[0]} ended with exit code {done.returncode}", f"logs: {self._cluster.folder}/log")
        return done.stdout

    def _state(self, job: str) -> str:
        return self._quiet("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def _await_start(self, job: str) -> None:
        deadline = time.monotonic() + JOB_SECONDS
        while self._state(job) == "PENDING" and time.monotonic() < deadline:
            time.sleep(0.1)

    def _await_end(self, job: str) -> None:
        print(f"-- waiting for job {job} ", end="", flush=True)
        deadline = time.monotonic() + JOB_SECONDS
        while (state := self._state(job)) in ("PENDING", "RUNNING", "COMPLETING"):
            if time.monotonic() > deadline:
                print()
                raise Unavailable(f"job {job} is still {state} after {JOB_SECONDS:.0f} s", f"see {self._folder}/logs")
            print(".", end="", flush=True)
            time.sleep(0.5)
        print(f" {state}\n", flush=True)


def fitting(cluster: Cluster) -> Plan:
    """Give the plan of the demonstration's cluster.

    Raises:
        Refused: the folder has a cluster already, on which the example job cannot run.
    """
    wanted = Plan()
    known = cluster.plan()
    if known is None:
        return wanted
    if known.nodes < 2 or (known.cpus, known.gpus) != (wanted.cpus, wanted.gpus):
        raise Refused(
            f"the cluster in {cluster.folder} is not the demonstration's: {known.nodes} nodes with {known.cpus} CPUs "
            f"and {known.gpus or 'no GPUs'} each, where it needs two with {wanted.cpus} CPUs and {wanted.gpus}",
            "MUSTER_HOME=FOLDER make demo shows it on a cluster of its own",
        )
    return known


def main() -> int:
    """Run the demonstration; 0 when the job ran and is COMPLETED."""
    try:
        cluster = Cluster(default_folder())
        plan = fitting(cluster)
        print(f"== a cluster on this host: controller, accounting, {plan.nodes} virtual nodes", flush=True)
        cluster.up(plan, lambda line: print(f"  {line}", flush=True))
        Demo(cluster).run()
    except MusterError as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
