"""srun: run tasks in parallel, inside an allocation or in one of its own."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` loads enum
import os
import sys
import time

from cli import base, submitting
from cli.srun_io import Node, Outputs, Session
from cli.srun_report import Ends
from muster import client, environment, frames, options, options_check, patterns
from muster.errors import MusterError, NotFound, Refused, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BUSY = 2016
_KILL_WAIT_SECONDS = 30
"""Where a controller does not say."""
_PATIENCE_SECONDS = 120.0
"""How long a waiting srun goes on asking a controller that cannot be reached (it restarts)."""

_STEP_KEYS = (
    "nodes", "ntasks", "ntasks_per_node", "cpus_per_task", "nodelist", "exclude", "relative", "exact", "overlap",
    "gpus_per_node", "gres", "mem", "kill_on_bad_exit", "distribution", "open_mode", "time_limit",
)  # fmt: skip
"""Options that a step takes as they are."""
_HERE = frozenset((
    "bundle", "chdir", "disable_status", "distribution", "error", "exact", "export", "help", "immediate", "input",
    "job_name", "jobid", "kill_on_bad_exit", "label", "mpi", "open_mode", "output", "overlap", "place", "propagate",
    "quiet", "relative", "test_only", "unbuffered", "usage", "verbose", "version", "wait",
))  # fmt: skip
"""Options that act in this command or shape its step alone; all others go to the controller with the request for an
allocation of srun's own."""
_NOT_FOR_STEPS = (
    "cpus_per_gpu", "gpus", "gpus_per_task", "mem_per_cpu", "mem_per_gpu", "ntasks_per_gpu", "overcommit",
    "core_spec", "cores_per_socket", "extra_node_info", "gpus_per_socket", "gres_flags", "hint", "licenses",
    "ntasks_per_core", "ntasks_per_socket", "sockets_per_node", "thread_spec", "threads_per_core", "tres_per_task",
    "bundle", "consolidate_segments", "contiguous", "place", "prefer", "segment", "spread_job", "spread_segments",
    "switches", "topology", "use_min_nodes",
)  # fmt: skip
"""Options that the reference also takes for a step inside an allocation; here they shape allocations only."""


def main(argv: list[str]) -> int:
    """Run the command and give its exit code."""
    return base.run("srun", _run, argv)


def _run(argv: list[str]) -> int:
    now = int(time.time())
    try:
        given, command = options.parse_argv("srun", argv, now)
        if any(key in given for key in options.IMMEDIATE_EXITS):
            return submitting.show_information("srun", given)
        values, warnings = options_check.check(
            "srun", options.merge(options.parse_environment("srun", {}, now), _environment(now), given)
        )
    except options.OptionError as wrong:
        code = submitting.error_exit("srun") if wrong.is_verification else wrong.exit_code
        raise base.Quit(code, *wrong.lines) from None
    for warning in warnings:
        base.say(f"srun: warning: {warning}")
    if values.get("mpi") == "list":
        base.write("MPI plugin types are...\n\tnone\n")
        return 0
    if values.get("verbose"):
        submitting.say_options("srun", values)
    if not command:
        raise base.fatal("srun", "No command given to execute.")
    return Srun(values, command, argv, given).run()


def _environment(now: int) -> options.Given:
    return options.parse_environment("srun", os.environ, now)


class Srun:
    """One invocation."""

    def __init__(self, values: dict[str, Any], command: list[str], argv: list[str], given: options.Given) -> None:
        self.values = values
        self.command = command
        self.argv = argv
        self.given = given
        self.quiet = bool(values.get("quiet"))
        self.job_id = 0
        self.step_id = -1
        self.kill_wait_seconds = _KILL_WAIT_SECONDS
        self.own_job = False
        self.interrupts = 0
        self.last_interrupt = 0.0
        self.ending = False
        self.ends: Ends | None = None
        self.session: Session | None = None
        self.signals, self._signal_writer = os.pipe()
        os.set_blocking(self._signal_writer, False)

    def run(self) -> int:
        """From the allocation to the exit code."""
        inside = self.values.get("jobid") or os.environ.get("SLURM_JOB_ID")
        if inside and not self.values.get("test_only"):
            self.job_id = self._existing(str(inside))
            self._refuse_for_step()
        else:
            self.own_job = True
            refused = self._allocate()
            if refused is not None:
                return refused
        self._catch_signals()
        return self._step()

    # The allocation.

    def _existing(self, text: str) -> int:
        job = str(text)
        if not job.isdecimal():
            raise base.Quit(1, f"srun: error: Unable to confirm allocation for job {job}: Invalid job id specified")
        return int(job)

    def _refuse_for_step(self) -> None:
        """Refuse what a step would not get. The variables of the surrounding job say what the job has: they pass."""
        refused = [f"--{self.given.options[key]}" for key in _NOT_FOR_STEPS if key in self.given]
        if isinstance(self.values.get("nodes"), dict):
            refused.append("a list of node counts in --nodes")
        if refused:
            raise base.Quit(
                1,
                *(f"srun: error: {what} is not supported for a step by this release of Muster" for what in refused),
                "srun: give it to the job, or say what the step gets on each node: --mem, --gpus-per-node",
            )

    def _allocate(self) -> int | None:
        """Get an allocation of our own; an exit code when that ends the command."""
        request = {key: value for key, value in self.values.items() if key not in _HERE and value is not None}
        request["job_name"] = self.values.get("job_name") or os.path.basename(self.command[0])
        request["batch"] = False
        request["echo"] = environment.echoed(self.values)
        request["work_dir"] = os.getcwd()
        request["submit_line"] = " ".join(["srun", *self.argv])
        request["submit_host"] = os.uname().nodename
        request["sid"] = os.getsid(0)
        request["umask"] = environment.current_umask()
        if self.values.get("test_only"):
            return self._test_only(request)
        immediate = self.values.get("immediate")
        try:
            answer = submitting.post("/v1/jobs", request)
        except MusterError as refused:
            raise _unable(refused) from None
        self.job_id = int(answer["job_id"])
        self._catch_signals()
        return self._await_start(immediate if immediate is None else float(immediate))

    def _test_only(self, request: dict[str, Any]) -> int:
        try:
            found = client.call("POST", "/v1/jobs", {**request, "test_only": True})
        except MusterError as refused:
            raise base.Quit(1, f"allocation failure: {refused.sentence}") from None
        base.say(submitting.estimate_line("srun", found))
        return 0

    def _await_start(self, immediate: float | None) -> int | None:
        told = False
        deadline = None if immediate is None else time.monotonic() + max(1.0, immediate)
        first = True
        while True:
            seconds = 0.2 if first else 30.0
            if deadline is not None:
                seconds = max(0.0, min(seconds, deadline - time.monotonic()))
            job = self._wait_for_start(seconds)
            first = False
            if job is None:
                # A signal came while we waited.
                self._cancel_job()
                base.say(f"srun: Job allocation {self.job_id} has been revoked")
                return 1
            if job["state"] == "RUNNING":
                if told and not self.quiet:
                    base.say(f"srun: job {self.job_id} has been allocated resources")
                return None
            if job["state"] != "PENDING":
                base.say(f"srun: error: Unable to allocate resources: {_ended_text(job)}")
                return 1
            if deadline is not None and time.monotonic() >= deadline:
                self._cancel_job()
                base.say("srun: error: Unable to allocate resources: Requested nodes are busy")
                return submitting.error_exit("srun", "SLURM_EXIT_IMMEDIATE")
            if not told and not self.quiet:
                told = True
                base.say(f"srun: job {self.job_id} queued and waiting for resources")

    def _wait_for_start(self, seconds: float) -> dict[str, Any] | None:
        """Ask until the job has started or `seconds` are over; None when a signal came."""
        path = f"/v1/jobs/{self.job_id}/wait?for=start&seconds={seconds:.1f}"
        lost_since = 0.0
        while True:
            try:
                found: dict[str, Any] = client.call("GET", path, timeout_seconds=seconds + 30)
            except Unavailable:
                # The controller restarts: the job is safe there, so go on asking.
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > _PATIENCE_SECONDS:
                    raise
                time.sleep(0.5)
                continue
            except InterruptedError:
                return None
            except MusterError as refused:
                raise _unable(refused) from None
            if self._signal_came():
                return None
            return found

    def _signal_came(self) -> bool:
        import select

        return bool(select.select([self.signals], [], [], 0)[0])

    def _cancel_job(self) -> None:
        try:
            client.call("POST", "/v1/jobs/cancel", {"ids": [str(self.job_id)]})
        except MusterError as error:
            base.say(f"srun: error: cannot cancel job {self.job_id}: {error.sentence}")

    # The step.

    def _step(self) -> int:
        step = self._create()
        self.step_id = int(step["step_id"])
        self.kill_wait_seconds = int(step.get("kill_wait_seconds", _KILL_WAIT_SECONDS))
        name = f"{self.job_id}.{self.step_id}"
        self.ends = Ends(name, int(step["ntasks"]))
        nodes = [Node(told) for told in step["nodes"]]
        try:
            outputs, stdin, stdin_rank = self._open(int(step["ntasks"]))
            for node in nodes:
                node.connect(self.job_id, int(step["run"]), self.step_id)
        except MusterError as error:
            self._end_step()
            raise base.Quit(1, f"srun: error: {error.sentence}") from None
        self.session = Session(
            nodes,
            outputs,
            stdin=stdin,
            stdin_rank=stdin_rank,
            on_exit=self._task_ended,
            on_message=base.say,
            on_failure=self._launch_failed,
            on_signal=self._signal,
            look=self._look,
            again=lambda node: node.attach(self.job_id, int(step["run"]), self.step_id, seconds=2.0),
            signals=self.signals,
        )
        self.session.run()
        lost = sorted(node.name for node in nodes if node.lost)
        if lost:
            from muster import hostlist

            base.say(f"srun: error: Node failure on {hostlist.uniq(lost)}")
        self.ends.report()
        # Output that was lost is a failure of the command, though the tasks did well.
        return max(self.ends.code, 1) if outputs.lost else self.ends.code

    def _create(self) -> dict[str, Any]:
        request = {key: self.values[key] for key in _STEP_KEYS if self.values.get(key) is not None}
        if self.own_job:
            for key in ("nodelist", "exclude", "gres", "gpus_per_node", "mem", "time_limit"):
                request.pop(key, None)  # the allocation has what they ask for
        if isinstance(request.get("nodes"), dict):
            request.pop("nodes")
        variables, _, _, warnings = environment.exported(os.environ, self.values.get("export"), "srun")
        for warning in warnings:
            base.say(f"srun: warning: {warning}")
        # What is asked of the step is told to its tasks in the variables that repeat options.
        variables |= environment.echoed(self.values)
        request |= {
            "name": self.values.get("job_name") or os.path.basename(self.command[0]),
            "argv": self.command,
            "work_dir": self.values.get("chdir") or os.getcwd(),
            "umask": environment.current_umask(),
            "rlimits": environment.propagated_rlimits(self.values.get("propagate")),
            "label": bool(self.values.get("label")),
            "unbuffered": bool(self.values.get("unbuffered")),
            "launch_host": _own_address(),
            "kill_on_bad_exit": bool(self.values.get("kill_on_bad_exit")),
            "submit_line": " ".join(["srun", *self.argv]),
            "token": os.urandom(12).hex(),
        }
        self._choose_files(request)
        return self._post_step(request, variables)

    def _post_step(self, request: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
        body = submitting.frame("srun", request, b"", variables)
        waited = immediate = self.values.get("immediate") is not None and not self.own_job
        told = False
        lost_since = 0.0
        while True:
            seconds = 0 if immediate else 50
            try:
                step: dict[str, Any] = client.call(
                    "POST", f"/v1/jobs/{self.job_id}/steps?wait={seconds}", body, timeout_seconds=seconds + 30
                )
            except NotFound as refused:
                raise base.Quit(
                    1,
                    f"srun: error: Unable to confirm allocation for job {self.job_id}: {refused.sentence}",
                    f"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {self.job_id}",
                ) from None
            except Refused as refused:
                if refused.slurm_code != _BUSY or waited:
                    raise self._no_step(refused) from None
                if self._signal_came():
                    raise base.Quit(1, f"srun: Cancelled pending step for job {self.job_id}") from None
                word = "still" if told else "temporarily"
                told = True
                base.say(f"srun: Job {self.job_id} step creation {word} disabled, retrying ({refused.sentence})")
                continue
            except Unavailable as away:
                # The controller or this host's agent restarts. With its token the request makes one step at most.
                lost_since = lost_since or time.monotonic()
                nobody_here = isinstance(away.__cause__, FileNotFoundError)
                if nobody_here or time.monotonic() - lost_since > _PATIENCE_SECONDS:
                    raise self._no_step(away) from None
                if self._signal_came():
                    raise base.Quit(1, f"srun: Cancelled pending step for job {self.job_id}") from None
                time.sleep(0.5)
                continue
            except MusterError as refused:
                raise self._no_step(refused) from None
            if told:
                base.say(f"srun: Step created for StepId={self.job_id}.{step['step_id']}")
            return step

    def _no_step(self, refused: MusterError) -> base.Quit:
        if self.own_job:
            self._cancel_job()
        lines = [f"srun: error: Unable to create step for job {self.job_id}: {refused.sentence}"]
        if refused.hint:
            lines.append(f"srun: {refused.hint}")
        return base.Quit(1, *lines)

    # Files.

    def _choose_files(self, request: dict[str, Any]) -> None:
        """Leave to the nodes the files that are one a task or node, and those of no use here."""
        for key in ("output", "error"):
            text = self.values.get(key)
            if text and (patterns.is_none(text) or patterns.needs_task_codes(text)):
                request[key] = text
        text = self.values.get("input")
        if text and patterns.is_none(text):
            request["input_mode"] = "none"
        elif text and text.isdecimal():
            request["input_mode"] = text
        elif text and patterns.needs_task_codes(text):
            request |= {"input": text, "input_mode": "file"}

    def _open(self, ntasks: int) -> tuple[Outputs, int, int]:
        """Open srun's own files and say what goes where; Unavailable names a file that cannot be opened."""
        stdout, only_out = self._output("output", 1, ntasks)
        if self.values.get("error"):
            stderr, only_err = self._output("error", 2, ntasks)
        elif self.values.get("output") and stdout != 1:
            stderr, only_err = stdout, only_out
        else:
            stderr, only_err = 2, -1
        width = len(str(ntasks - 1)) if self.values.get("label") else 0
        outputs = Outputs(stdout, stderr, label_width=width, only_out=only_out, only_err=only_err)
        outputs.unbuffered = bool(self.values.get("unbuffered"))
        stdin, rank = self._input(ntasks)
        return outputs, stdin, rank

    def _output(self, key: str, default: int, ntasks: int) -> tuple[int, int]:
        text = self.values.get(key)
        if not text or patterns.is_none(text) or patterns.needs_task_codes(text):
            return default, -1
        kind, rank = patterns.stream_mode(text, ntasks)
        if kind != "file":
            return default, rank
        path = patterns.expand(text, self._pattern_values())
        flags = os.O_WRONLY | os.O_CREAT | (0 if self.values.get("open_mode") == "a" else os.O_TRUNC) | os.O_APPEND
        try:
            folder = os.path.dirname(path)
            if folder:
                os.makedirs(folder, exist_ok=True)
            return os.open(path, flags, 0o666), -1
        except OSError as error:
            stream = "stdout" if key == "output" else "stderr"
            raise Unavailable(f"Could not open {stream} file: {error.strerror}", path) from error

    def _input(self, ntasks: int) -> tuple[int, int]:
        text = self.values.get("input")
        if not text:
            return 0, frames.ALL
        if patterns.is_none(text) or patterns.needs_task_codes(text):
            return -1, frames.ALL
        kind, rank = patterns.stream_mode(text, ntasks)
        if kind == "all":
            return 0, frames.ALL
        if kind == "task":
            return 0, rank
        try:
            return os.open(patterns.expand(text, self._pattern_values()), os.O_RDONLY), frames.ALL
        except OSError as error:
            raise Unavailable(f"Could not open stdin file: {error.strerror}", text) from error

    def _pattern_values(self) -> dict[str, str | int]:
        array = os.environ.get("SLURM_ARRAY_JOB_ID", "")
        index = os.environ.get("SLURM_ARRAY_TASK_ID", "")
        values = patterns.batch_values(
            job_id=self.job_id,
            job_name=os.environ.get("SLURM_JOB_NAME") or os.path.basename(self.command[0]),
            user=base.user_name(os.getuid()),
            array_job_id=int(array) if array.isdecimal() else None,
            array_index=int(index) if index.isdecimal() else None,
            restarts=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        )
        values["J"] = f"{self.job_id}.{self.step_id}"
        values["s"] = self.step_id
        return values

    # What happens meanwhile.

    def _task_ended(self, node: Node, rank: int, status: int) -> None:
        assert self.ends is not None
        first = not self.ends.any_ended
        self.ends.add(node.name, rank, status)
        if not self.ends.running(node.ranks):
            self.ends.report()
        wait = self.values.get("wait")
        if first and wait and self.session is not None:
            self.session.deadline = time.monotonic() + wait
            self.session.expired = self._waited_enough
        if status and self.values.get("kill_on_bad_exit") and not self.ending:
            self.ending = True
            self.ends.report()
            base.say(f"srun: Terminating StepId={self.job_id}.{self.step_id}")

    def _waited_enough(self) -> None:
        assert self.ends is not None
        base.say(f"srun: First task exited {self.values['wait']}s ago")
        for line in self.ends.states():
            base.say(line)
        base.say(f"srun: Terminating StepId={self.job_id}.{self.step_id}")
        self._abort()

    def _launch_failed(self, node: Node, why: str) -> None:
        assert self.ends is not None
        self.ends.failed_launch = True
        base.say(f"srun: error: Task launch for StepId={self.job_id}.{self.step_id} failed on node {node.name}: {why}")
        base.say(f"srun: error: Application launch failed: {why}")

    def _look(self) -> list[str] | None:
        try:
            found = client.call("GET", f"/v1/jobs/{self.job_id}/steps/{self.step_id}", patience_seconds=0.0)
        except NotFound:
            return None
        except MusterError:
            return []  # the controller restarts: the tasks go on, and so do we
        return list(found["lost"]) if found["running"] else None

    # Signals.

    def _catch_signals(self) -> None:
        _signal.set_wakeup_fd(self._signal_writer, warn_on_full_buffer=False)
        for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1,
                       _signal.SIGUSR2, _signal.SIGCONT, _signal.SIGALRM):  # fmt: skip
            _signal.signal(number, _wake)
        _signal.signal(_signal.SIGTSTP, _signal.SIG_IGN)
        _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)

    def _signal(self, number: int) -> None:
        step = f"{self.job_id}.{self.step_id}"
        assert self.ends is not None
        if number == _signal.SIGINT:
            self._interrupt(step)
        elif number in (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
            if number == _signal.SIGQUIT:
                base.say("srun: Quit")
            base.say("srun: forcing job termination")
            self._abort()
        elif number == _signal.SIGCONT:
            base.say("srun: got SIGCONT")
        else:
            self._forward(number)

    def _interrupt(self, step: str) -> None:
        assert self.ends is not None
        now = time.monotonic()
        if self.values.get("disable_status"):
            base.say(f"srun: sending Ctrl-C to StepId={step}")
            self._forward(_signal.SIGINT)
            return
        again = now - self.last_interrupt <= 1.0
        self.last_interrupt = now
        if self.ending and again:
            base.say("srun: forcing job termination")
            sys.exit(130)
        if not again:
            base.say("srun: interrupt (one more within 1 sec to abort)")
            for line in self.ends.states():
                base.say(line)
            return
        base.say(f"srun: sending Ctrl-C to StepId={step}")
        self._forward(_signal.SIGINT)
        base.say("srun: forcing job termination")
        self._abort()

    def _forward(self, number: int) -> None:
        try:
            client.call("POST", f"/v1/jobs/{self.job_id}/steps/{self.step_id}/signal?signal={int(number)}")
        except MusterError as error:
            base.say(f"srun: error: cannot send signal {int(number)}: {error.sentence}")

    def _abort(self) -> None:
        """End the step, saying how long that may take."""
        if self.ending:
            return
        self.ending = True
        base.say(f"srun: Job step aborted: Waiting up to {self.kill_wait_seconds + 2} seconds for job step to finish.")
        self._end_step()

    def _end_step(self) -> None:
        try:
            client.call_retrying("POST", f"/v1/jobs/{self.job_id}/steps/{self.step_id}/cancel")
        except NotFound:
            pass  # it has ended meanwhile
        except MusterError as error:
            base.say(f"srun: error: cannot end step {self.job_id}.{self.step_id}: {error.sentence}")


def _wake(_number: int, _frame: object) -> None:
    """The wake-up descriptor has the number already."""


def _unable(refused: MusterError) -> base.Quit:
    lines = submitting.refusal_lines("srun", "srun: error: Unable to allocate resources: ", refused)
    return base.Quit(submitting.error_exit("srun"), *lines)


def _ended_text(job: dict[str, Any]) -> str:
    return "Job/step already completing or completed" if job["state"] == "CANCELLED" else f"job ended {job['state']}"


def _own_address() -> str:
    """Give this host's address as tasks on other nodes can reach it (no packet is sent)."""
    import _socket

    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()
    return address
