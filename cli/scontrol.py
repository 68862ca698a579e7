"""scontrol: looks at and changes jobs, nodes, partitions and the controller. This module reads the command line."""

from __future__ import annotations

import sys

from cli import base

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SHORTS = "adFhM:oQu:vV"
_NO, _ARG, _OPT = base.NO_ARGUMENT, base.ARGUMENT, base.OPTIONAL
LONGS = {
    "all": ("a", _NO),
    "clusters": ("M", _ARG),
    "details": ("d", _NO),
    "federation": ("federation", _NO),
    "future": ("F", _NO),
    "help": ("h", _NO),
    "hide": ("hide", _NO),
    "json": ("json", _OPT),
    "local": ("local", _NO),
    "oneliner": ("o", _NO),
    "quiet": ("Q", _NO),
    "sibling": ("sibling", _NO),
    "uid": ("u", _ARG),
    "verbose": ("v", _NO),
    "version": ("V", _NO),
    "yaml": ("yaml", _OPT),
}
UNSUPPORTED = {
    "federation": "--federation",
    "json": "--json",
    "sibling": "--sibling",
    "u": "--uid",
    "yaml": "--yaml",
}

KEYWORDS = (
    ("show", 3, 1, -1),  # how many each entity takes, it says itself
    ("ping", 1, 0, 0),
    ("version", 4, 0, 0),
    ("update", 1, 1, -1),
    ("create", 2, 1, -1),
    ("delete", 1, 1, -1),
    ("hold", 4, 1, -1),
    ("holdu", 5, 1, -1),
    ("uhold", 2, 1, -1),
    ("release", 3, 1, -1),
    ("requeue", 3, 1, -1),
    ("requeuehold", 8, 1, -1),
    ("suspend", 2, 1, -1),
    ("resume", 3, 1, -1),
    ("top", 1, 1, -1),
    ("reconfigure", 3, 0, 0),
    ("shutdown", 8, 0, 1),
    ("takeover", 8, 0, 1),
    ("reboot", 3, 1, -1),
    ("cancel_reboot", 3, 1, 1),
    ("power", 3, 1, -1),
    ("token", 1, 0, 2),
    ("wait_job", 1, 1, 1),
    ("write", 5, 1, 3),
    ("notify", 1, 2, -1),
    ("listpids", 6, 0, 2),
    ("listjobs", 5, 0, 1),
    ("liststeps", 5, 0, 1),
    ("completing", 2, 0, 0),
    ("setdebug", 4, 1, 2),
    ("setdebugflags", 9, 1, -1),
    ("schedloglevel", 3, 1, 1),
    ("getent", 1, 1, 1),
    ("pidinfo", 3, 1, 1),
    ("errnumstr", 1, 1, 1),
    ("explain", 3, 1, 2),
    ("abort", 5, 0, 0),
    ("callerid", 3, 5, 6),
    ("fsdampeningfactor", 1, 1, 1),
)
"""Keyword, least letters that name it, least and most arguments (-1: any number)."""

HELP = """\
Usage: scontrol [OPTIONS] COMMAND [ARGUMENTS]
  -a, --all            show hidden partitions too
  -d, --details        show more about jobs and nodes
      --json[=SHAPE]   JSON, of explain
  -M, --clusters=NAME  the cluster to speak to
  -o, --oneliner       one line for each record
  -Q, --quiet          no error texts; the exit code tells
  -v, --verbose        say what is asked, and of which controller
  -V, --version        print the version and leave

Commands:
  show ENTITY [ID]     config, daemons, hostlist LIST, hostlistsorted LIST, hostnames [LIST], job, licenses, node,
                       partition, reservation, step, topology
  explain job ID       why a job waits, with the numbers behind it; also with --json
  update KEY=VALUE ... change a job, node or reservation
  create reservation KEY=VALUE ..., delete reservation NAME
  hold, release, uhold, requeue, requeuehold, suspend, resume JOBS
  ping, shutdown, version
  write batch_script JOB [FILE|-]
"""


def main(argv: list[str]) -> int:
    """Carry out one command; the exit code is 1 if anything went wrong."""
    return base.run("scontrol", _main, argv)


def _main(argv: list[str]) -> int:
    found, rest = base.getopt("scontrol", argv, SHORTS, LONGS)
    options = dict(found)
    for key, option in UNSUPPORTED.items():
        if key in options and not (key == "json" and _is_explain(rest)):
            raise base.Quit(1, f"scontrol: error: {option} is not supported by this release of Muster")
    if "V" in options:
        return base.print_version()
    if "h" in options or rest[:1] == ["help"]:
        base.write(HELP)
        return 0
    quiet = "Q" in options
    if not rest:
        raise base.Quit(
            1, "scontrol: error: the interactive prompt is not supported; name a command, `scontrol --help` lists them"
        )
    if quiet:
        base.silence()
    if "v" in options:
        base.say_asked("scontrol", found)
    if _is_explain(rest):
        return _explain(argv, rest, options)
    return _carry_out(rest[0], rest[1:], options, quiet)


def _is_explain(rest: list[str]) -> bool:
    row = find(rest[0].lower()) if rest else None
    return row is not None and row[0] == "explain"


def _explain(argv: list[str], rest: list[str], options: dict[str, str | None]) -> int:
    _, _, least, most = find(rest[0].lower()) or KEYWORDS[0]
    if not least <= len(rest) - 1 <= most:
        raise base.Quit(1, f"too {'few' if len(rest) <= least else 'many'} arguments for keyword:{rest[0]}")
    from cli import scontrol_explain

    return scontrol_explain.explain(
        rest[1:],
        cluster=options.get("M"),
        as_json="json" in options,
        shape=options.get("json"),
        argv=argv,
    )


def _carry_out(word: str, arguments: list[str], options: dict[str, str | None], quiet: bool) -> int:
    # `show=job` and `show=job=5` are the same as `show job`, as in the reference.
    head, equals, tail = word.partition("=")
    row = find(head.lower())
    if row is None:
        raise base.Quit(1, f"invalid keyword: {word}")
    keyword, _, least, most = row
    if equals:
        arguments = [tail, *arguments]
    if len(arguments) < least:
        if keyword in ("update", "delete"):
            raise base.Quit(1, f"too few arguments for {keyword} keyword")
        raise base.Quit(1, f"too few arguments for keyword:{word}")
    if 0 <= most < len(arguments):
        raise base.Quit(1, f"too many arguments for keyword:{word}")
    if keyword == "version":
        return base.print_version()
    if keyword in ("show", "ping"):
        from cli import scontrol_show

        shown = scontrol_show.Options(
            oneliner="o" in options, details="d" in options, all="a" in options, cluster=options.get("M")
        )
        return scontrol_show.ping() if keyword == "ping" else scontrol_show.show(arguments, shown)
    from cli import scontrol_actions

    return scontrol_actions.run(keyword, arguments, quiet)


def find(word: str) -> tuple[str, int, int, int] | None:
    """Give the row of a keyword by its name or a beginning that is long enough; the first that fits wins."""
    return pick(word, KEYWORDS)


def pick(word: str, rows: Sequence[tuple[str, int, int, int]]) -> tuple[str, int, int, int] | None:
    """Find a word in a table; an exact name wins over a beginning."""
    for row in rows:
        if row[0] == word:
            return row
    for row in rows:
        if len(word) >= row[1] and row[0].startswith(word):
            return row
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
