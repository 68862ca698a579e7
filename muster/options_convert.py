"""Converters of option texts: each turns the text of one option into the value that is stored, or raises BadValue.

A converter gets (text, option name, now); text is None when an optional value was left out. Texts and exit codes
are those of the reference: a bad word is `Invalid --x specification` and 255, a bad number is its own text and 1.
Values are plain and fit JSON: str, int, bool, list.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BAD_OPTION = 255
LARGEST_INT = 2147483647
LARGEST_NICE = 2147483645
LARGEST_NODE_COUNT = 65536

RLIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")
SAMPLED = ("task", "energy", "network", "filesystem")
GRES_FLAGS = (
    "disable-binding",
    "enforce-binding",
    "one-task-per-sharing",
    "multiple-tasks-per-sharing",
    "allow-task-sharing",
)
HINTS = ("compute_bound", "memory_bound", "multithread", "nomultithread", "help")
MAIL_TYPES = (
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "ALL",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
)
CPU_BINDS = ("none", "no", "rank", "rank_ldom", "sockets", "cores", "threads", "ldoms", "help", "quiet", "verbose")
CPU_BIND_LISTS = ("map_cpu:", "mask_cpu:", "map_ldom:", "mask_ldom:")


class BadValue(Exception):
    """The text of an option cannot be read.

    Args:
        texts: the lines to print, each `severity: text` or plain text, without the command's name.
        exit_code: what the command then exits with, 255 or 1.
    """

    def __init__(self, *texts: str, exit_code: int = BAD_OPTION) -> None:
        super().__init__(*texts)
        self.texts = texts
        self.exit_code = exit_code


def _invalid(option: str, *before: str) -> BadValue:
    return BadValue(*before, f"error: Invalid --{option} specification")


def _flag(text: str | None, option: str, now: int) -> object:
    return True


def _off(text: str | None, option: str, now: int) -> object:
    return False


def _text(text: str | None, option: str, now: int) -> object:
    return True if text is None else text


def whole_number(text: str, name: str, least: int) -> int:
    """Read a decimal number of at least `least`; the error names `name` (with its dashes) and exits with 1."""
    digits = text.strip()
    sign = digits[:1] in ("+", "-")
    bare = digits[1:] if sign else digits
    if bare.isascii() and bare.isdigit():
        if len(bare) > 18 or (number := int(digits)) > LARGEST_INT:
            if digits[:1] != "-":
                raise BadValue(f"error: Numeric argument ({digits}) too large for {name}.", exit_code=1)
        elif number >= least:
            return number
    raise BadValue(f'error: Invalid numeric value "{text}" for {name}.', exit_code=1)


def _count(text: str | None, option: str, now: int) -> object:
    return whole_number(text or "", f"--{option}", 1)


def _count0(text: str | None, option: str, now: int) -> object:
    return whole_number(text or "", f"--{option}", 0)


def _immediate(text: str | None, option: str, now: int) -> object:
    return 1 if text is None else whole_number(text, "immediate", 0)


def _segment(text: str | None, option: str, now: int) -> object:
    """The number of nodes; checked and as given where a level follows: `N:required:LEVEL`."""
    from muster.errors import InvalidInput
    from muster.placement import parse_segment

    try:
        size, level = parse_segment(text or "")
    except InvalidInput:
        raise _invalid(option) from None
    return text if level else size


def _topology(text: str | None, option: str, now: int) -> object:
    """Checked, and stored as given."""
    from muster.errors import InvalidInput
    from muster.placement import parse_topology

    try:
        parse_topology(text or "")
    except InvalidInput as exc:
        raise _invalid(option, f"error: {exc.sentence}") from None
    return text


def _place(text: str | None, option: str, now: int) -> object:
    """One of the words of `--place`; STRICT_PACK is strict-pack."""
    from muster.placement import PLACES

    word = (text or "").lower().replace("_", "-")
    if word not in PLACES:
        raise _invalid(option, f"error: --place is one of {', '.join(PLACES)}")
    return word


def _bundle(text: str | None, option: str, now: int) -> object:
    """Checked, and stored as given."""
    from muster.errors import InvalidInput
    from muster.placement import parse_bundle

    try:
        parse_bundle(text or "")
    except InvalidInput as exc:
        raise _invalid(option, f"error: {exc.sentence}") from None
    return text


def _nodes(text: str | None, option: str, now: int) -> object:
    """`2`, `2-4`, `4k` give [least, most]; a list such as `1,2,4` or `2-8:2` gives {"sizes": [...]}."""
    given = text or ""
    bad = BadValue(f'error: "{given}" is not a valid node count')
    if "," in given or ":" in given:
        return {"sizes": _node_sizes(given, bad)}
    first, dash, last = given.partition("-")
    least = _node_count(first, bad)
    most = _node_count(last, bad) if dash else least
    if dash and most < least:
        raise BadValue(f"error: Maximum node count {most} is less than minimum node count {least}")
    return [least, most]


def _node_count(text: str, bad: BadValue) -> int:
    factor = {"k": 1024, "m": 1048576}.get(text[-1:].lower(), 1)
    digits = text if factor == 1 else text[:-1]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise bad
    return int(digits) * factor


def _node_sizes(text: str, bad: BadValue) -> list[int]:
    sizes: set[int] = set()
    for part in text.split(","):
        span, colon, stride = part.partition(":")
        first, dash, last = span.partition("-")
        start = _node_count(first, bad)
        end = _node_count(last, bad) if dash else start
        step = _node_count(stride, bad) if colon else 1
        if start < 1 or end < start or step < 1 or end > LARGEST_NODE_COUNT or (colon and not dash):
            raise bad
        sizes.update(range(start, end + 1, step))
    return sorted(sizes)


def _limit(text: str | None, option: str, now: int) -> object:
    """Minutes; -1 is unlimited (`0`, `-1`, `UNLIMITED`, `INFINITE`)."""
    from muster.errors import InvalidInput
    from muster.units import parse_limit_minutes

    try:
        minutes = parse_limit_minutes(text or "", zero_is_unlimited=True)
    except InvalidInput:
        raise _invalid(option) from None
    return -1 if minutes is None else minutes


def _minutes(text: str | None, option: str, now: int) -> object:
    """Minutes of a waiting time, where 0 is no time at all; -1 is unlimited."""
    from muster.errors import InvalidInput
    from muster.units import parse_limit_minutes

    try:
        minutes = parse_limit_minutes(text or "", zero_is_unlimited=False)
    except InvalidInput:
        raise _invalid(option) from None
    return -1 if minutes is None else minutes


def _memory(text: str | None, option: str, now: int) -> object:
    """MiB; 0 is all of it."""
    from muster.errors import InvalidInput
    from muster.units import parse_memory_mib

    try:
        return parse_memory_mib(text or "")
    except InvalidInput:
        raise _invalid(option) from None


def _time_point(text: str | None, option: str, now: int) -> object:
    """Seconds since the epoch."""
    from muster.errors import InvalidInput
    from muster.timepoints import parse_time_point

    try:
        return parse_time_point(text or "", now)
    except InvalidInput as exc:
        raise _invalid(option, f"error: {exc.sentence}") from None


def _signal(text: str | None, option: str, now: int) -> object:
    from muster.errors import InvalidInput
    from muster.signals import parse_signal_option

    try:
        parse_signal_option(text or "")
    except InvalidInput:
        raise _invalid(option) from None
    return text


def _kill_command(text: str | None, option: str, now: int) -> object:
    from muster.errors import InvalidInput
    from muster.signals import parse_signal

    try:
        parse_signal("TERM" if text is None else text)
    except InvalidInput:
        raise _invalid(option) from None
    return "TERM" if text is None else text


def _folder(text: str | None, option: str, now: int) -> object:
    """An absolute path; a relative one starts at the current folder. Links are kept as they are named."""
    given = text or ""
    if given.startswith("/"):
        return given
    import os

    return f"{os.getcwd().rstrip('/')}/{given}" if given else os.getcwd()


def _exclusive(text: str | None, option: str, now: int) -> object:
    if text is None:
        return "node"
    word = text.lower()
    if word in ("user", "mcs", "topo", "allocation"):
        return word
    raise _invalid(option)


def _yes_no(text: str | None, option: str, now: int) -> object:
    word = (text or "").lower()
    if word in ("yes", "no"):
        return word == "yes"
    raise _invalid(option)


def _zero_one(text: str | None, option: str, now: int) -> object:
    """0 or 1; a value that was left out is 1."""
    if text is None:
        return 1
    if text in ("0", "1"):
        return int(text)
    raise _invalid(option)


def _no_kill(text: str | None, option: str, now: int) -> object:
    if text is None or text.lower() in ("set", "on"):
        return True
    if text.lower() in ("off", "no"):
        return False
    raise _invalid(option)


def _get_user_env(text: str | None, option: str, now: int) -> object:
    """Old scripts write `=[timeout][mode]` (S or L); neither means anything now, other words are mistakes."""
    if text and (text.lstrip("0123456789").upper() not in ("", "S", "L")):
        raise _invalid(option)
    return True


def _requeue(text: str | None, option: str, now: int) -> object:
    if text is None or text.lower() == "yes" or (text.isdigit() and int(text) > 0):
        return True
    if text.lower() == "expedite":
        return "expedite"
    raise _invalid(option)


def _open_mode(text: str | None, option: str, now: int) -> object:
    letter = (text or "")[:1].lower()
    if letter in ("a", "t"):
        return letter
    raise _invalid(option)


def _leading_int(text: str) -> int:
    """The number that the text begins with, as strtol reads it; 0 when there is none."""
    body = text.strip()
    end = 1 if body[:1] in ("+", "-") else 0
    while end < len(body) and "0" <= body[end] <= "9":
        end += 1
    digits = body[:end]
    if digits in ("", "+", "-"):
        return 0
    if len(digits) > 19:
        return -LARGEST_INT * LARGEST_INT if digits[0] == "-" else LARGEST_INT * LARGEST_INT
    return int(digits)


def _nice(text: str | None, option: str, now: int) -> object:
    if text is None:
        return 100
    number = _leading_int(text)
    if not -LARGEST_NICE <= number <= LARGEST_NICE:
        raise BadValue(f"error: Invalid --nice value, out of range (+/- {LARGEST_NICE})")
    return number


def _priority(text: str | None, option: str, now: int) -> object:
    given = text or ""
    if given.upper() == "TOP":
        return "TOP"
    bare = given[1:] if given[:1] == "-" else given
    if not (bare.isascii() and bare.isdigit()) or len(bare) > 18:
        raise _invalid(option)
    number = int(given)
    if number < 0:
        raise BadValue("error: Priority must be >= 0")
    if number > 4294967293:  # the two largest 32-bit numbers mean "infinite" and "not set"
        raise BadValue("error: Priority must be < 4294967294")
    return number


def _extra_node_info(text: str | None, option: str, now: int) -> object:
    """[sockets, cores a socket, threads a core] at least; 0 is any (`*` or left out)."""
    parts = (text or "").split(":")
    if len(parts) > 3 or not all(part == "*" or (part.isascii() and part.isdigit()) for part in parts):
        raise _invalid(option)
    numbers = [0 if part == "*" else int(part) for part in parts]
    return numbers + [0] * (3 - len(numbers))


def _acctg_freq(text: str | None, option: str, now: int) -> object:
    for token in (text or "").split(","):
        kind, equals, number = token.rpartition("=")
        if (equals and kind.lower() not in SAMPLED) or not (number.isascii() and number.isdigit()):
            raise BadValue(f"error: Invalid --acctg-freq specification: {token}")
    return text


def _gres_flags(text: str | None, option: str, now: int) -> object:
    for token in (text or "").split(","):
        if token.lower() not in GRES_FLAGS:
            raise BadValue(f"error: Invalid --gres-flags specification: {token}")
    return text


def _gpu_bind(text: str | None, option: str, now: int) -> object:
    given = text or ""
    kind = given.lower().removeprefix("verbose,").removeprefix("v,")
    if not _is_gpu_bind(kind):
        raise BadValue(f"error: Invalid --gpu-bind argument: {given}")
    return given


def _is_gpu_bind(kind: str) -> bool:
    if kind in ("none", "closest"):
        return True
    word, colon, rest = kind.partition(":")
    if not colon or not rest:
        return False
    if word in ("single", "per_task"):
        return rest.isascii() and rest.isdigit() and int(rest) > 0
    if word in ("map", "mask", "map_gpu", "mask_gpu"):
        return all(item.partition("*")[0].strip() for item in rest.split(","))
    return False


def _tres_bind(text: str | None, option: str, now: int) -> object:
    given = text or ""
    for part in given.split("+"):
        name, colon, kind = part.partition(":")
        kind = kind.lower().removeprefix("verbose,")
        if not name.startswith("gres/") or len(name) == 5 or not colon or not _is_gpu_bind(kind):
            raise _invalid(option)
    return given


def _hint(text: str | None, option: str, now: int) -> object:
    word = (text or "").lower()
    if word not in HINTS:
        raise BadValue(f'error: unrecognized --hint argument "{text}", see --hint=help', exit_code=1)
    return word


def _mail_type(text: str | None, option: str, now: int) -> object:
    """The words in capitals, joined by commas; NONE takes back those before it."""
    kept: list[str] = []
    for word in (text or "").upper().split(","):
        if word == "NONE":
            kept.clear()
        elif word in MAIL_TYPES:
            kept.append(word)
        else:
            raise _invalid(option)
    return ",".join(kept) or "NONE"


def _distribution(text: str | None, option: str, now: int) -> object:
    """Checked, and stored as given: `nodes[:sockets[:cores]][,Pack|NoPack]`."""
    given = text or ""
    layout, *flags = given.lower().split(",")
    first, *levels = layout.split(":")
    method, equals, size = first.partition("=")
    if method == "plane":
        if not (size.isascii() and size.isdigit() and int(size) > 0):
            raise _invalid(option, "error: Invalid plane size or size not specified")
    elif equals or method not in ("*", "block", "cyclic", "arbitrary"):
        raise _invalid(option)
    if len(levels) > 2 or any(level not in ("*", "block", "cyclic", "fcyclic") for level in levels):
        raise _invalid(option)
    if any(flag not in ("pack", "nopack") for flag in flags):
        raise _invalid(option)
    return given


def _cpu_bind(text: str | None, option: str, now: int) -> object:
    given = text or ""
    words = given.lower().split(",")
    for place, word in enumerate(words):
        if word.startswith(CPU_BIND_LISTS):
            break  # the commas that follow belong to the list
        if word not in CPU_BINDS and not (place == 0 and word in ("q", "v")):
            raise BadValue(
                f'error: unrecognized --cpu-bind argument "{given}"',
                "fatal: Failed to parse --cpu-bind= values.",
                exit_code=1,
            )
    return given


def _switches(text: str | None, option: str, now: int) -> object:
    """Checked, and stored as given: `N[@TIME]`."""
    number, at, wait = (text or "").partition("@")
    whole_number(number, "--switches", 1)
    if at:
        _minutes(wait, option, now)
    return text


def _propagate(text: str | None, option: str, now: int) -> object:
    """Names in capitals, joined by commas; a value that was left out is ALL."""
    if text is None:
        return "ALL"
    names = [name.strip().upper().removeprefix("RLIMIT_") for name in text.split(",")]
    if len(names) > 1 and any(name in ("ALL", "NONE") for name in names):
        raise _invalid(option)
    if any(name not in RLIMITS and name not in ("ALL", "NONE") for name in names):
        raise _invalid(option)
    return ",".join(names)


def _node_list(text: str | None, option: str, now: int) -> object:
    """A hostlist as given, or, when the text has a `/`, the nodes that this file names."""
    given = text or ""
    return _node_file(given, option, now) if "/" in given else given


def _node_file(text: str | None, option: str, now: int) -> object:
    """The nodes named in a file: separated by blanks, commas or line ends; `#` begins a remark."""
    try:
        with open(text or "", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError as exc:
        raise BadValue(f"error: Unable to read node file {text}: {exc.strerror}", exit_code=1) from None
    words = [word for line in lines for word in line.partition("#")[0].replace(",", " ").split()]
    if not words:
        raise BadValue(f"error: Node file {text} names no node", exit_code=1)
    return ",".join(words)


def _verbose(text: str | None, option: str, now: int) -> object:
    """1 for each -v; the environment gives the level itself."""
    return 1 if text is None else max(_leading_int(text), 0)


CONVERTERS: dict[str, Callable[[str | None, str, int], object]] = {
    "flag": _flag,
    "off": _off,
    "text": _text,
    "count": _count,
    "count0": _count0,
    "immediate": _immediate,
    "bundle": _bundle,
    "place": _place,
    "segment": _segment,
    "topology": _topology,
    "nodes": _nodes,
    "limit": _limit,
    "minutes": _minutes,
    "memory": _memory,
    "time_point": _time_point,
    "signal": _signal,
    "kill_command": _kill_command,
    "folder": _folder,
    "exclusive": _exclusive,
    "yes_no": _yes_no,
    "zero_one": _zero_one,
    "no_kill": _no_kill,
    "get_user_env": _get_user_env,
    "requeue": _requeue,
    "open_mode": _open_mode,
    "nice": _nice,
    "priority": _priority,
    "extra_node_info": _extra_node_info,
    "acctg_freq": _acctg_freq,
    "gres_flags": _gres_flags,
    "gpu_bind": _gpu_bind,
    "tres_bind": _tres_bind,
    "hint": _hint,
    "mail_type": _mail_type,
    "distribution": _distribution,
    "cpu_bind": _cpu_bind,
    "switches": _switches,
    "propagate": _propagate,
    "node_list": _node_list,
    "node_file": _node_file,
    "verbose": _verbose,
}
