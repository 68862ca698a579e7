"""Accounts and QOS at submission: filled in, and refused where that is enforced."""

from __future__ import annotations

import pytest

from ctld.core.accounts import Association, Qos
from ctld.core.cluster import Settings
from ctld.core.commands import ApplyAccounts, Submit
from ctld.core.events import JobSubmitted
from ctld.core.model import Job
from muster.errors import InvalidInput
from tests.builders import ADMIN, USER, a_partition, a_spec, a_state
from tests.stage import Stage

TREE = ApplyAccounts(
    (
        Association(1, "root", qos=("normal",)),
        Association(2, "physics", parent_id=1),
        Association(3, "physics", parent_id=2, user="ada", default=True, qos=("+long",), default_qos="long"),
        Association(4, "chem", parent_id=1),
        Association(5, "chem", parent_id=4, user="ada", partition="fast"),
    ),
    (Qos(1, "normal"), Qos(2, "long"), Qos(3, "high")),
)


def a_stage(*enforce: str) -> Stage:
    settings = Settings(require_registration=False, accounting_enforce=enforce)
    stage = Stage(a_state(settings=settings, partitions=(a_partition(), a_partition("fast"))))
    stage.do(TREE)
    return stage


def submitted(stage: Stage, **fields: object) -> Job:
    """A job that was submitted without a QOS."""
    (event, *_) = stage.do(Submit(a_spec(**fields), USER, qos_given=False))  # type: ignore[arg-type]
    assert isinstance(event, JobSubmitted)
    return stage.job(event.job.id)


def test_without_associations_every_account_is_taken_and_the_qos_is_normal() -> None:
    stage = Stage(a_state())
    job = submitted(stage, account="Any")
    assert (job.spec.account, job.spec.qos) == ("Any", "normal")


def test_the_defaults_are_filled_in() -> None:
    stage = a_stage("associations", "qos")
    job = submitted(stage)
    assert (job.spec.account, job.spec.qos) == ("physics", "long")
    job = stage.job(stage.submit(account="PHYSICS", qos="Normal"))
    assert (job.spec.account, job.spec.qos) == ("physics", "normal")


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"user": "eve"}, "user eve has no association"),
        ({"account": "bio"}, "user ada may use these accounts: chem, physics"),
        ({"account": "chem"}, "user ada may use account chem in other partitions than main"),
    ],
)
def test_enforced_associations_refuse_unknown_users_and_accounts(fields: dict[str, str], hint: str) -> None:
    stage = a_stage("associations")
    with pytest.raises(InvalidInput, match="Invalid account or account/partition combination specified") as caught:
        stage.submit(a_spec(**fields))  # type: ignore[arg-type]
    assert (caught.value.slurm_code, hint in caught.value.hint) == (2045, True)
    # Not enforced, the job is taken.
    assert a_stage().submit(a_spec(**fields))  # type: ignore[arg-type]


def test_an_association_of_one_partition_holds_there_only() -> None:
    stage = a_stage("associations")
    assert stage.submit(account="chem", partitions=("fast",))
    with pytest.raises(InvalidInput, match="Invalid account"):
        stage.submit(account="chem", partitions=("fast", "main"))


@pytest.mark.parametrize(
    ("qos", "hint"),
    [
        ("none", "there is no QOS none; there are: high, long, normal"),
        ("high", "QOS high is not open to ada in physics, who may use: normal, long"),
    ],
)
def test_enforced_qos_refuses_what_is_unknown_or_not_allowed(qos: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid qos specification") as caught:
        a_stage("associations", "qos").submit(qos=qos)
    assert (caught.value.slurm_code, caught.value.hint) == (2066, hint)
    assert a_stage("associations").submit(qos=qos)


def test_administrators_may_use_every_qos() -> None:
    stage = a_stage("associations", "qos")
    assert stage.submit(a_spec(qos="high", account="physics"), by=ADMIN)
    with pytest.raises(InvalidInput):
        stage.submit(a_spec(qos="high", account="physics"), by=USER)
