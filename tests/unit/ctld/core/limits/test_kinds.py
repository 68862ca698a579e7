"""The spelling of reasons."""

from __future__ import annotations

import pytest

from ctld.core.limits.kinds import Kind, reason, type_of
from muster.states import Reason

FAMILIES = ("cpu", "mem", "node", "gres/gpu", "license/x", "bb/x", "energy", "billing", "fs/disk")

SPELLED = {
    (
        Kind.GRP_TRES,
        False,
    ): "AssocGrpCpuLimit AssocGrpMemLimit AssocGrpNodeLimit AssocGrpGRES AssocGrpLicense AssocGrpBB "
    "AssocGrpEnergy AssocGrpBilling AssocGrpUnknown",
    (
        Kind.GRP_TRES_MINUTES,
        False,
    ): "AssocGrpCPUMinutesLimit AssocGrpMemMinutes AssocGrpNodeMinutes AssocGrpGRESMinutes "
    "AssocGrpLicenseMinutes AssocGrpBBMinutes AssocGrpEnergyMinutes AssocGrpBillingMinutes AssocGrpUnknownMinutes",
    (Kind.GRP_TRES_RUN_MINUTES, False): "AssocGrpCPURunMinutesLimit AssocGrpMemRunMinutes AssocGrpNodeRunMinutes "
    "AssocGrpGRESRunMinutes AssocGrpLicenseRunMinutes AssocGrpBBRunMinutes AssocGrpEnergyRunMinutes "
    "AssocGrpBillingRunMinutes AssocGrpUnknownRunMinutes",
    (Kind.JOB_TRES, False): "AssocMaxCpuPerJobLimit AssocMaxMemPerJob AssocMaxNodePerJobLimit AssocMaxGRESPerJob "
    "AssocMaxLicensePerJob AssocMaxBBPerJob AssocMaxEnergyPerJob AssocMaxBillingPerJob AssocMaxUnknownPerJob",
    (Kind.NODE_TRES, False): "AssocMaxCpuPerNode AssocMaxMemPerNode AssocMaxUnknownPerNode AssocMaxGRESPerNode "
    "AssocMaxUnknownPerNode AssocMaxUnknownPerNode AssocMaxEnergyPerNode AssocMaxBillingPerNode AssocMaxUnknownPerNode",
    (Kind.JOB_TRES_MINUTES, False): "AssocMaxCpuMinutesPerJobLimit AssocMaxMemMinutesPerJob AssocMaxNodeMinutesPerJob "
    "AssocMaxGRESMinutesPerJob AssocMaxLicenseMinutesPerJob AssocMaxBBMinutesPerJob AssocMaxEnergyMinutesPerJob "
    "AssocMaxBillingMinutesPerJob AssocMaxUnknownMinutesPerJob",
    (
        Kind.GRP_TRES,
        True,
    ): "QOSGrpCpuLimit QOSGrpMemLimit QOSGrpNodeLimit QOSGrpGRES QOSGrpLicense QOSGrpBB QOSGrpEnergy "
    "QOSGrpBilling QOSGrpUnknown",
    (Kind.GRP_TRES_MINUTES, True): "QOSGrpCPUMinutesLimit QOSGrpMemoryMinutes QOSGrpNodeMinutes QOSGrpGRESMinutes "
    "QOSGrpLicenseMinutes QOSGrpBBMinutes QOSGrpEnergyMinutes QOSGrpBillingMinutes QOSGrpUnknownMinutes",
    (Kind.GRP_TRES_RUN_MINUTES, True): "QOSGrpCPURunMinutesLimit QOSGrpMemoryRunMinutes QOSGrpNodeRunMinutes "
    "QOSGrpGRESRunMinutes QOSGrpLicenseRunMinutes QOSGrpBBRunMinutes QOSGrpEnergyRunMinutes QOSGrpBillingRunMinutes "
    "QOSGrpUnknownRunMinutes",
    (Kind.JOB_TRES, True): "QOSMaxCpuPerJobLimit QOSMaxMemoryPerJob QOSMaxNodePerJobLimit QOSMaxGRESPerJob "
    "QOSMaxLicensePerJob QOSMaxBBPerJob QOSMaxEnergyPerJob QOSMaxBillingPerJob QOSMaxUnknownPerJob",
    (Kind.NODE_TRES, True): "QOSMaxCpuPerNode QOSMaxMemoryPerNode QOSMaxUnknownPerNode QOSMaxGRESPerNode "
    "QOSMaxUnknownPerNode QOSMaxUnknownPerNode QOSMaxEnergyPerNode QOSMaxBillingPerNode QOSMaxUnknownPerNode",
    (Kind.JOB_TRES_MINUTES, True): "QOSMaxCpuMinutesPerJobLimit QOSMaxMemoryMinutesPerJob QOSMaxNodeMinutesPerJob "
    "QOSMaxGRESMinutesPerJob QOSMaxLicenseMinutesPerJob QOSMaxBBMinutesPerJob QOSMaxEnergyMinutesPerJob "
    "QOSMaxBillingMinutesPerJob QOSMaxUnknownMinutesPerJob",
    (Kind.USER_TRES, True): "QOSMaxCpuPerUserLimit QOSMaxMemoryPerUser QOSMaxNodePerUserLimit QOSMaxGRESPerUser "
    "QOSMaxLicensePerUser QOSMaxBBPerUser QOSMaxEnergyPerUser QOSMaxBillingPerUser QOSMaxUnknownPerUser",
    (Kind.USER_TRES_RUN_MINUTES, True): "MaxCpuRunMinsPerUser MaxMemoryRunMinsPerUser MaxNodeRunMinsPerUser "
    "MaxGRESRunMinsPerUser MaxLicenseRunMinsPerUser MaxBBRunMinsPerUser MaxEnergyRunMinsPerUser "
    "MaxBillingRunMinsPerUser MaxUnknownRunMinsPerUser",
    (Kind.ACCOUNT_TRES, True): "MaxCpuPerAccount MaxMemoryPerAccount MaxNodePerAccount MaxGRESPerAccount "
    "MaxLicensePerAccount MaxBBPerAccount MaxEnergyPerAccount MaxBillingPerAccount MaxUnknownPerAccount",
    (
        Kind.ACCOUNT_TRES_RUN_MINUTES,
        True,
    ): "MaxCpuRunMinsPerAccount MaxMemoryRunMinsPerAccount MaxNodeRunMinsPerAccount "
    "MaxGRESRunMinsPerAccount MaxLicenseRunMinsPerAccount MaxBBRunMinsPerAccount MaxEnergyRunMinsPerAccount "
    "MaxBillingRunMinsPerAccount MaxUnknownRunMinsPerAccount",
    (
        Kind.MIN_TRES,
        True,
    ): "QOSMinCpuNotSatisfied QOSMinMemory QOSMinNode QOSMinGRES QOSMinLicense QOSMinBB QOSMinEnergy "
    "QOSMinBilling QOSMinUnknown",
}


@pytest.mark.parametrize(("kind", "of_qos"), SPELLED)
def test_each_reason_is_spelled_as_slurm_spells_it(kind: Kind, of_qos: bool) -> None:
    assert " ".join(reason(kind, of_qos, tres) for tres in FAMILIES) == SPELLED[kind, of_qos]


def test_limits_that_count_no_resources_have_one_reason_each() -> None:
    found = [reason(kind, False) for kind in (Kind.GRP_JOBS, Kind.GRP_SUBMIT_JOBS, Kind.GRP_WALL, Kind.JOB_WALL)]
    found += [reason(kind, True) for kind in (Kind.GRP_JOBS, Kind.GRP_SUBMIT_JOBS, Kind.GRP_WALL, Kind.JOB_WALL)]
    assert found == [
        "AssocGrpJobsLimit",
        "AssocGrpSubmitJobsLimit",
        "AssocGrpWallLimit",
        "AssocMaxWallDurationPerJobLimit",
        "QOSGrpJobsLimit",
        "QOSGrpSubmitJobsLimit",
        "QOSGrpWallLimit",
        "QOSMaxWallDurationPerJobLimit",
    ]
    assert reason(Kind.MAX_JOBS, False) == "AssocMaxJobsLimit"
    assert reason(Kind.MAX_SUBMIT_JOBS, False) == "AssocMaxSubmitJobLimit"
    assert reason(Kind.USER_JOBS, True) == "QOSMaxJobsPerUserLimit"
    assert reason(Kind.USER_SUBMIT_JOBS, True) == "QOSMaxSubmitJobPerUserLimit"
    assert reason(Kind.ACCOUNT_JOBS, True) == "MaxJobsPerAccount"
    assert reason(Kind.ACCOUNT_SUBMIT_JOBS, True) == "MaxSubmitJobsPerAccount"


def test_a_type_of_gres_is_of_the_family_of_gres() -> None:
    assert type_of("gres/gpu:a100") == "GRES"
    assert type_of("gres/shard") == "GRES"


def test_no_two_reasons_have_one_spelling() -> None:
    assert len({reason.value.lower() for reason in Reason}) == len(Reason)
