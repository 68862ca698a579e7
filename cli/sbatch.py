"""sbatch: submit a batch script."""

from __future__ import annotations

import os
import time

from cli import base, submitting
from muster import batchscript, environment, options, options_check
from muster.errors import InvalidInput, MusterError, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WAIT_SECONDS = 50
"""How long one call of --wait waits; the command asks again until the job is over."""
_PATIENCE_SECONDS = 600.0
"""How long --wait goes on asking for a controller that cannot be reached."""

_HERE = frozenset((
    "bundle", "clusters", "export", "export_file", "get_user_env", "help", "ignore_pbs", "parsable", "place",
    "propagate", "quiet", "test_only", "usage", "verbose", "version", "wait", "wrap",
))  # fmt: skip
"""Options that act in this command; all others go to the controller, which refuses what it does not know."""


def main(argv: list[str]) -> int:
    """Submit a script and give the exit code."""
    return base.run("sbatch", _run, argv)


def _run(argv: list[str]) -> int:
    now = int(time.time())
    exit_error = submitting.error_exit("sbatch")
    try:
        given, rest = options.parse_argv("sbatch", argv, now)
        if any(key in given for key in options.IMMEDIATE_EXITS):
            return submitting.show_information("sbatch", given)
        script = _Script(given, rest)
        found = batchscript.scan_script(
            "sbatch",
            script.text,
            script.name,
            strict=_is_set("MUSTER_STRICT_DIRECTIVES"),
            ignore_pbs="ignore_pbs" in given or _is_set("SBATCH_IGNORE_PBS"),
        )
        for text in found.errors:
            base.error("sbatch", text)
        directives = options.parse_directives("sbatch", found.lines, now)
        merged = options.merge(directives, options.parse_environment("sbatch", os.environ, now), given)
        cluster = str(merged.pop("clusters", ""))
        values, warnings = options_check.check("sbatch", merged)
    except options.OptionError as wrong:
        raise base.Quit(exit_error if wrong.is_verification else wrong.exit_code, *wrong.lines) from None
    if str(values.get("gres", "")).lower() in ("help", "list"):
        base.write("Valid gres options are:\ngpu[[:type]:count]\n")
        return 0
    request, variables, more = _request(values, script, argv)
    if not values.get("quiet"):
        for text in (*found.warnings, *warnings, *more, *_output_warnings(values, request)):
            base.say(f"sbatch: warning: {text}")
    if values.get("verbose"):
        submitting.say_options("sbatch", values)
    body = submitting.frame("sbatch", request, script.text.encode("utf-8", "surrogateescape"), variables)
    return _submit(body, values, cluster, exit_error)


class _Script:
    """The script: its text, the name that messages use, the path that is shown, the job's name by default."""

    def __init__(self, given: options.Given, rest: list[str]) -> None:
        self.arguments = rest[1:]
        self.path = ""
        wrapped = given.get("wrap")
        if wrapped is not None:
            if rest:
                raise options.OptionError(
                    ["sbatch: error: Script arguments not permitted with --wrap option"], 1, is_verification=True
                )
            self.name = self.job_name = "wrap"
            self.text = batchscript.check_script("sbatch", _bytes(batchscript.wrap_script(str(wrapped))), "wrap")
        elif rest:
            self.name = rest[0]
            folder = str(given.get("chdir") or _current_folder())
            found = batchscript.find_script(rest[0], folder, os.environ.get("PATH", ""))
            self.text = batchscript.read_script("sbatch", found, rest[0])
            self.path = found if found.startswith("/") else os.path.normpath(f"{_current_folder()}/{found}")
            self.job_name = os.path.basename(rest[0])
        else:
            self.name, self.job_name = "stdin", "sbatch"
            self.text = batchscript.read_script("sbatch", None, "stdin")


def _request(
    values: dict[str, Any], script: _Script, argv: list[str]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Give the request, the job's environment and warnings."""
    request = {key: value for key, value in values.items() if key not in _HERE}
    request.setdefault("job_name", script.job_name)
    work_dir = _current_folder()
    variables, export, get_user_env, warnings = environment.exported(os.environ, values.get("export"), "sbatch")
    if "export_file" in values:
        try:
            variables = {**environment.read_export_file(str(values["export_file"])), **variables}
        except InvalidInput as wrong:
            raise base.Quit(1, f"sbatch: error: {wrong}") from None
    echo = environment.echoed(values)
    if "chdir" in values:
        echo["SLURM_SUBMIT_DIR"] = work_dir
    request.update(
        command=script.path,
        echo=echo,
        export=export or "",
        get_user_env=get_user_env or bool(values.get("get_user_env")),
        rlimits=environment.propagated_rlimits(values.get("propagate")),
        script_args=script.arguments,
        sid=os.getsid(0),
        submit_host=os.uname().nodename.partition(".")[0],
        submit_line=" ".join(["sbatch", *argv]),
        umask=environment.current_umask(),
        work_dir=work_dir,
    )
    if values.get("test_only"):
        request["test_only"] = True
    return request, variables, warnings


def _submit(body: bytes, values: dict[str, Any], cluster: str, exit_error: int) -> int:
    path = "/v1/jobs"
    if cluster:
        from muster import client

        path += f"?cluster={client.quote(cluster)}"
    test_only = bool(values.get("test_only"))
    try:
        answer = submitting.post(path, body)
    except MusterError as problem:
        if problem.sentence.startswith("No cluster "):
            raise base.Quit(1, f"sbatch: error: {problem.sentence}", f"sbatch: {problem.hint}") from None
        what = "allocation failure: " if test_only else "sbatch: error: Batch job submission failed: "
        code = 1 if test_only else exit_error
        raise base.Quit(code, *submitting.refusal_lines("sbatch", what, problem)) from None
    if test_only:
        base.say(submitting.estimate_line("sbatch", answer, cluster=cluster))
        return 0
    for text in answer["messages"]:
        base.say(f"sbatch: {text}")
    job_id = answer["job_id"]
    if not values.get("quiet"):
        if values.get("parsable"):
            line = f"{job_id};{answer['cluster']}\n" if cluster else f"{job_id}\n"
        else:
            line = f"Submitted batch job {job_id}{' on cluster ' + answer['cluster'] if cluster else ''}\n"
        base.write(line)
    return _wait(job_id) if values.get("wait") else 0


def _wait(job_id: int) -> int:
    """Return when the job is over, with the highest exit code of its records (1 for a signal)."""
    from muster import client

    path = f"/v1/jobs/{job_id}/wait?for=end&seconds={_WAIT_SECONDS}"
    while True:
        try:
            found = client.call_retrying("GET", path, seconds=_PATIENCE_SECONDS)
        except NotFound:
            raise base.Quit(1, f"sbatch: error: Job {job_id} no longer found and exit code not found") from None
        if found["ended"]:
            return int(found["exit_code"])


def _output_warnings(values: dict[str, Any], request: dict[str, Any]) -> list[str]:
    """Say what of the output files can be seen to fail from here. Missing folders are no problem: they are made."""
    found: list[str] = []
    for key, stream in (("output", "output"), ("error", "error")):
        pattern = values.get(key, "")
        if pattern.lower() == "none" or (key == "error" and not pattern):
            continue
        path = os.path.join(request.get("chdir") or request["work_dir"], pattern.replace("\\", ""))
        why = _unwritable(path)
        if why:
            found.append(
                f"standard {stream} would go to {path.rstrip('/')}, but {why}; where that holds, the job fails"
            )
    return found


def _unwritable(path: str) -> str:
    """Say why no file can be made at a path (up to its first pattern code); empty when it seems possible."""
    if "%" not in path and not path.endswith("/") and os.path.lexists(path):
        if os.path.isdir(path):
            return f"{path} is a directory"
        return "" if os.access(path, os.W_OK) else f"you cannot write to {path}"
    folder = os.path.dirname(path.partition("%")[0])
    while not os.path.lexists(folder) and len(folder) > 1:
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        return f"{folder} is no directory"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"you cannot write into {folder}"


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError as problem:
        raise base.Quit(1, f"sbatch: error: getcwd failed: {problem.strerror}") from None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0").lower() not in ("", "0", "no")
