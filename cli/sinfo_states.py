"""The language of `sinfo -t`: `idle,mixed` (any of), `idle+drain` (all of), `~down` (not)."""

from __future__ import annotations

from cli.base import Quit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Test = Callable[[str, Sequence[str]], bool]
    """(base state, flags of the complete form) -> whether the word holds"""

WORDS = (
    "unknown,down,idle,allocated,mixed,future,drain,drained,draining,no_respond,reserved,planned,blocked,cloud,"
    "completing,powering_down,powered_down,power_down,powering_up,power_up,inval,fail,maint,reboot,reboot^,external,"
    "dynamic_future,dynamic_norm"
)
BASES = {
    "unknown": "UNKNOWN",
    "unk": "UNKNOWN",
    "down": "DOWN",
    "idle": "IDLE",
    "allocated": "ALLOCATED",
    "alloc": "ALLOCATED",
    "mixed": "MIXED",
    "mix": "MIXED",
    "future": "FUTURE",
    "futr": "FUTURE",
    "error": "ERROR",
}
FLAGS = {
    "blocked": "BLOCKED",
    "block": "BLOCKED",
    "cloud": "CLOUD",
    "completing": "COMPLETING",
    "comp": "COMPLETING",
    "drain": "DRAIN",
    "dynamic_future": "DYNAMIC_FUTURE",
    "dynamic_norm": "DYNAMIC_NORM",
    "external": "EXTERNAL",
    "fail": "FAIL",
    "inval": "INVALID_REG",
    "invalid_reg": "INVALID_REG",
    "maint": "MAINTENANCE",
    "maintenance": "MAINTENANCE",
    "no_respond": "NOT_RESPONDING",
    "not_responding": "NOT_RESPONDING",
    "planned": "PLANNED",
    "plnd": "PLANNED",
    "power_down": "POWER_DOWN",
    "power_up": "POWER_UP",
    "powered_down": "POWERED_DOWN",
    "powering_down": "POWERING_DOWN",
    "powering_up": "POWERING_UP",
    "reboot": "REBOOT_REQUESTED",
    "reboot^": "REBOOT_ISSUED",
    "reboot_issued": "REBOOT_ISSUED",
    "reboot_requested": "REBOOT_REQUESTED",
    "reserved": "RESERVED",
    "resv": "RESERVED",
    "resume": "RESUME",
}
# Words of a flag together with whether the node works: (flag, busy).
BUSY_FLAGS = {
    "drained": ("DRAIN", False),
    "draining": ("DRAIN", True),
    "drng": ("DRAIN", True),
    "failing": ("FAIL", True),
    "failg": ("FAIL", True),
}


def chooser(text: str | None) -> tuple[Test, bool] | None:
    """Read the states of -t: what tells whether a node is asked for, and whether FUTURE nodes are asked for by name.

    None asks for all. Raises Quit for a word that is no state.
    """
    if not text or text.lower() == "all":
        return None
    any_of: list[list[tuple[bool, Test]]] = []
    for group in text.lower().split(","):
        all_of = []
        for word in group.replace("&", "+").split("+"):
            bare = word.lstrip("~!")
            all_of.append(((len(word) - len(bare)) % 2 == 0, _test(bare, text)))
        any_of.append(all_of)

    def chosen(base: str, flags: Sequence[str]) -> bool:
        return any(all(test(base, flags) is wanted for wanted, test in all_of) for all_of in any_of)

    return chosen, "fut" in text.lower()


def _test(word: str, text: str) -> Test:
    if word in BASES:
        expected = BASES[word]
        return lambda base, flags: base == expected
    if word in FLAGS:
        flag = FLAGS[word]
        return lambda base, flags: flag in flags
    if word in BUSY_FLAGS:
        flag, busy = BUSY_FLAGS[word]
        return lambda base, flags: flag in flags and (base in ("ALLOCATED", "MIXED") or "COMPLETING" in flags) is busy
    raise Quit(1, f'sinfo: error: Bad state string: "{text}"', f"sinfo: error: valid states: {WORDS}")
