"""The texts of --help and --usage, made from the table: only what the command acts on is shown."""

from __future__ import annotations

from muster.options import rows_of
from muster.options_table import ACTED

SYNOPSIS = {
    "sbatch": "sbatch [OPTIONS] SCRIPT [ARGUMENTS...]",
    "srun": "srun [OPTIONS] PROGRAM [ARGUMENTS...]",
    "salloc": "salloc [OPTIONS] [COMMAND [ARGUMENTS...]]",
}
_COLUMN = 36
_WIDTH = 80


def help_text(command: str) -> str:
    """Give the text of `--help`, each option with its meaning, in the order of the table."""
    lines = [f"Usage: {SYNOPSIS[command]}", "", "Options:"]
    for long, row in rows_of(command)[0].items():
        if long not in ACTED[command]:
            continue
        left = f"  -{row[0]}, --{long}{row[3]}" if row[0] else f"      --{long}{row[3]}"
        if len(left) >= _COLUMN - 1:
            lines.append(left)
            left = ""
        lines.append(f"{left:<{_COLUMN}}{row[8]}")
    if command == "sbatch":
        lines += ["", "Options may stand in the script, in lines that begin with #SBATCH before its first command;"]
        lines += ["the command line overrides SBATCH_ variables, and these override the script."]
    return "\n".join(lines) + "\n"


def usage_text(command: str) -> str:
    """Give the text of `--usage`: every option that the command acts on, folded to 80 columns."""
    head = f"Usage: {command}"
    lines: list[str] = []
    line = head
    for long, row in rows_of(command)[0].items():
        if long not in ACTED[command]:
            continue
        word = f"[--{long}{row[3]}]"
        if len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = " " * len(head)
        line = f"{line} {word}"
    tail = SYNOPSIS[command].partition("[OPTIONS] ")[2]
    lines.append(line)
    lines.append(f"{' ' * len(head)} {tail}")
    return "\n".join(lines) + "\n"
