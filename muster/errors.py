"""The error hierarchy of the house: a class a kind, each with a code, a sentence and an optional hint.

Core code raises these; services turn them into answers in one place (HTTP middleware, gRPC interceptor), and the
client turns the answer back into the same class. `slurm_code` is the number that Slurm's clients know
(JSON `error_number`, exit codes modulo 256); the sentence of such an error is Slurm's own text.
"""

from __future__ import annotations


class MusterError(Exception):
    """An error that a user can act on: one sentence and, where it helps, a cure.

    Args:
        sentence: what is wrong, naming the thing and its place.
        hint: what to do about it; empty when the sentence says it all.
        slurm_code: the number of Slurm's error table (0: none).
    """

    code = "INTERNAL"
    http_status = 500

    def __init__(self, sentence: str, hint: str = "", *, slurm_code: int = 0) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.slurm_code = slurm_code

    def __str__(self) -> str:
        return f"{self.sentence} ({self.hint})" if self.hint else self.sentence

    def parts(self) -> dict[str, str | int]:
        """Give what an answer in JSON says of it; `muster.client` makes the same error of that."""
        return {"code": self.code, "sentence": self.sentence, "hint": self.hint, "slurm_code": self.slurm_code}


class InvalidInput(MusterError):
    """The text, option, file or request itself is wrong; asking again unchanged cannot help."""

    code = "INVALID_INPUT"
    http_status = 400


class NotFound(MusterError):
    """The object named is not known (never issued, purged, or not visible to the caller)."""

    code = "NOT_FOUND"
    http_status = 404


class Refused(MusterError):
    """The request is well formed, but the state of its object or a policy forbids it."""

    code = "REFUSED"
    http_status = 409


class Denied(MusterError):
    """The caller may not do this."""

    code = "DENIED"
    http_status = 403


class TooLarge(MusterError):
    """A request, script or list is over its documented bound."""

    code = "TOO_LARGE"
    http_status = 413


class Unavailable(MusterError):
    """The other side cannot be reached or cannot take this now; the same call may work later."""

    code = "UNAVAILABLE"
    http_status = 503


class Damaged(MusterError):
    """Stored state is damaged; names the file and the record. The daemon refuses to start on it."""

    code = "DAMAGED"
    http_status = 500


class ConfigError(InvalidInput):
    """A configuration file is wrong; the sentence begins with `file:line:`."""

    code = "CONFIG"


KINDS: dict[str, type[MusterError]] = {
    kind.code: kind
    for kind in (MusterError, InvalidInput, NotFound, Refused, Denied, TooLarge, Unavailable, Damaged, ConfigError)
}


def from_wire(code: str, sentence: str, hint: str = "", slurm_code: int = 0) -> MusterError:
    """Rebuild the error that another process answered with; an unknown code gives the base class."""
    return KINDS.get(code, MusterError)(sentence, hint, slurm_code=slurm_code)
