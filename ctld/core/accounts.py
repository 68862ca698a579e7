"""The association tree and the QOS: who may use what, with which shares and limits.

Fed whole by the event AccountsApplied (from a file now, from the accounting daemon later); records are frozen, and
`Accounts` answers every question about their relations from tables made once. Limits hold as written here; how they
combine is scheduling.md 10.1: per-job and per-user maxima of an account are the defaults of what is below it
(`Accounts.limits`), group limits hold at every level by themselves (`Accounts.path`).

A number of -1, and a TRES that is not in a dictionary, set no limit. TRES are named `cpu`, `mem` (MiB), `node`,
`billing`, `gres/gpu`, `gres/gpu:a100`, `license/x`; times are minutes where a name says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import field, structs

from ctld.core.model import Record

UNSET = -1
PARENT_SHARES = -2
"""Shares of an association with Fairshare=parent."""
NORMAL = "normal"
"""The QOS of a job that names none where no association says otherwise."""

Tres = dict[str, int]


class Limits(Record, frozen=True):
    """The limits that associations and QOS have in common; times in minutes."""

    grp_tres: Tres = field(default_factory=dict)
    grp_tres_minutes: Tres = field(default_factory=dict)
    grp_tres_run_minutes: Tres = field(default_factory=dict)
    grp_jobs: int = UNSET
    grp_jobs_accrue: int = UNSET
    grp_submit_jobs: int = UNSET
    grp_wall_minutes: int = UNSET
    max_jobs: int = UNSET
    """Associations only: running jobs of one user association. (QOS: `Qos.per_user`.)"""
    max_jobs_accrue: int = UNSET
    """Associations only."""
    max_submit_jobs: int = UNSET
    """Associations only."""
    max_tres_per_job: Tres = field(default_factory=dict)
    max_tres_per_node: Tres = field(default_factory=dict)
    max_tres_minutes_per_job: Tres = field(default_factory=dict)
    max_wall_minutes_per_job: int = UNSET


class Share(Record, frozen=True):
    """What one user, or one account, may have of a QOS."""

    tres: Tres = field(default_factory=dict)
    tres_run_minutes: Tres = field(default_factory=dict)
    jobs: int = UNSET
    jobs_accrue: int = UNSET
    submit_jobs: int = UNSET


class Association(Record, frozen=True):
    """A node of the tree: the root, an account, or a user in an account (in one partition, or in all)."""

    id: int
    account: str
    parent_id: int = 0
    """0: it is the root."""
    user: str = ""
    """Empty: an account."""
    partition: str = ""
    """Empty: all partitions."""
    shares: int = 1
    """Fairshare=; PARENT_SHARES for `parent`."""
    priority: int = UNSET
    """UNSET: the parent's."""
    default: bool = False
    """The user's default account."""
    default_qos: str = ""
    """Empty: the parent's."""
    qos: tuple[str, ...] = ()
    """Allowed QOS. Empty: the parent's. Names with + or - in front change the parent's list."""
    limits: Limits = Limits()
    min_prio_threshold: int = UNSET
    comment: str = ""
    description: str = ""
    organization: str = ""


class Qos(Record, frozen=True):
    """A quality of service."""

    id: int
    name: str
    description: str = ""
    priority: int = 0
    flags: tuple[str, ...] = ()
    """As the manual spells them: DenyOnLimit, OverPartQOS, NoDecay, NoReserve, UsageFactorSafe, ..."""
    limits: Limits = Limits()
    per_user: Share = Share()
    per_account: Share = Share()
    min_tres_per_job: Tres = field(default_factory=dict)
    preempt: tuple[str, ...] = ()
    """Names of the QOS whose jobs it may preempt."""
    preempt_mode: str = ""
    """Empty: the cluster's. Upper case, words joined by commas."""
    grace_seconds: int = 0
    preempt_exempt_seconds: int = UNSET
    """UNSET: the cluster's."""
    usage_factor: float = 1.0
    usage_threshold: float = -1.0
    """Negative: not set."""
    limit_factor: float = -1.0
    """Negative: not set. Multiplies GrpTRES and MaxTRES of associations."""
    min_prio_threshold: int = UNSET
    max_queue_wait_seconds: int = UNSET
    """A job that waited longer gets the first reservation of its tier."""


class Accounts:
    """The tree and the QOS with their relations. Never changed: a new feed makes a new one."""

    def __init__(self, associations: Iterable[Association] = (), qos: Iterable[Qos] = ()) -> None:
        self.associations: dict[int, Association] = {one.id: one for one in associations}
        self.qos: dict[str, Qos] = {one.name: one for one in qos}
        self.root: Association | None = None
        self._children: dict[int, list[Association]] = {}
        self._by_key: dict[tuple[str, str, str], Association] = {}
        self._defaults: dict[str, str] = {}
        for one in self.associations.values():
            self._by_key[one.user, one.account, one.partition] = one
            if one.parent_id:
                self._children.setdefault(one.parent_id, []).append(one)
            else:
                self.root = one
            if one.user and (one.default or one.user not in self._defaults):
                self._defaults[one.user] = one.account
        self._paths: dict[int, tuple[Association, ...]] = {}
        self._limits: dict[int, Limits] = {}
        self._allowed: dict[int, tuple[str, ...]] = {}
        self.top_priority = max((self.priority(one.id) for one in self.associations.values()), default=0)
        """Largest association priority, and that of the QOS: what the factors are divided by."""
        self.top_qos_priority = max((one.priority for one in self.qos.values()), default=0)

    def __bool__(self) -> bool:
        """Whether there are associations at all; without them every account name is taken as given."""
        return bool(self.associations)

    def __eq__(self, other: object) -> bool:
        """Two feeds of the same records in the same order are one."""
        return (
            isinstance(other, Accounts)
            and list(self.associations.values()) == list(other.associations.values())
            and list(self.qos.values()) == list(other.qos.values())
        )

    __hash__ = None  # type: ignore[assignment]  # compared by content, never a key

    # ---- finding -----------------------------------------------------------------------------------------------

    def find(self, user: str, account: str, partition: str = "") -> Association | None:
        """Find the association of a user in an account: that for the partition if there is one, else the general
        one."""
        if partition:
            exact = self._by_key.get((user, account, partition))
            if exact is not None:
                return exact
        return self._by_key.get((user, account, ""))

    def account(self, name: str) -> Association | None:
        """Find an account (the root's is called root)."""
        return self._by_key.get(("", name, ""))

    def has_user(self, user: str) -> bool:
        """Tell whether the user has any association."""
        return user in self._defaults

    def default_account(self, user: str) -> str:
        """Give the user's default account, the first one where none is marked; empty for an unknown user."""
        return self._defaults.get(user, "")

    def with_above(self, account: str) -> tuple[str, ...]:
        """Give the name of an account and of those that it lies in; what holds for these holds for it."""
        one = self.account(account)
        return (account,) if one is None else tuple(above.account for above in self.path(one.id))

    def children(self, association_id: int) -> tuple[Association, ...]:
        """Give what is directly below an association, in the order of the feed."""
        return tuple(self._children.get(association_id, ()))

    def path(self, association_id: int) -> tuple[Association, ...]:
        """Give an association and all above it, the root last."""
        known = self._paths.get(association_id)
        if known is None:
            one = self.associations[association_id]
            above = self.path(one.parent_id) if one.parent_id in self.associations else ()
            known = self._paths[association_id] = (one, *above)
        return known

    # ---- what holds for one ------------------------------------------------------------------------------------

    def limits(self, association_id: int) -> Limits:
        """Give the limits of an association with the maxima that it does not set taken from above.

        Group limits are its own: those above hold by themselves, see `path`.
        """
        known = self._limits.get(association_id)
        if known is None:
            one = self.associations[association_id]
            known = one.limits
            if one.parent_id in self.associations:
                known = _inherited(known, self.limits(one.parent_id))
            self._limits[association_id] = known
        return known

    def allowed_qos(self, association_id: int) -> tuple[str, ...]:
        """Give the names of the QOS that jobs of an association may use; `normal` where no level has a list."""
        known = self._allowed.get(association_id)
        if known is None:
            one = self.associations[association_id]
            above = self.allowed_qos(one.parent_id) if one.parent_id in self.associations else (NORMAL,)
            known = self._allowed[association_id] = _merged(above, one.qos)
        return known

    def default_qos(self, association_id: int) -> str:
        """Give the QOS of a job that names none: the nearest level's default, else `normal` or the only one
        allowed."""
        for one in self.path(association_id):
            if one.default_qos:
                return one.default_qos
        allowed = self.allowed_qos(association_id)
        return NORMAL if NORMAL in allowed or not allowed else allowed[0]

    def priority(self, association_id: int) -> int:
        """Give the priority of the nearest level that sets one, else 0."""
        return next((one.priority for one in self.path(association_id) if one.priority != UNSET), 0)

    def min_prio_threshold(self, association_id: int) -> int:
        """Give the least priority with which a job may reserve, of the nearest level that sets one, else UNSET."""
        return next(
            (one.min_prio_threshold for one in self.path(association_id) if one.min_prio_threshold != UNSET), UNSET
        )


_MAXIMA = ("max_jobs", "max_jobs_accrue", "max_submit_jobs", "max_wall_minutes_per_job")
_TRES_MAXIMA = ("max_tres_per_job", "max_tres_per_node", "max_tres_minutes_per_job")


def _inherited(own: Limits, above: Limits) -> Limits:
    """Fill the maxima that are not set with those from above, TRES by TRES."""
    fields: dict[str, int | Tres] = {
        name: getattr(above, name) for name in _MAXIMA if getattr(own, name) == UNSET != getattr(above, name)
    }
    for name in _TRES_MAXIMA:
        theirs: Tres = getattr(above, name)
        mine: Tres = getattr(own, name)
        if theirs and (both := {**theirs, **mine}) != mine:
            fields[name] = both
    return structs.replace(own, **fields) if fields else own


def _merged(above: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """Give a QOS list: what is written replaces, what has a sign changes the inherited list."""
    plain = [name for name in own if name[0] not in "+-"]
    kept = dict.fromkeys(plain or above)
    for name in own:
        if name[0] == "+":
            kept[name[1:]] = None
        elif name[0] == "-":
            kept.pop(name[1:], None)
    return tuple(kept)
