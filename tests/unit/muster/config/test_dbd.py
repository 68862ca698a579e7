"""dbd.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.config.load import load_dbd
from muster.config.records import DbdConfig
from muster.errors import ConfigError

HEAD = "DbdHost=db\nStorageType=accounting_storage/postgresql\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "dbd.conf"
    path.write_text(HEAD)
    return path


def with_lines(conf: Path, text: str) -> DbdConfig:
    conf.write_text(HEAD + text)
    return load_dbd(conf, {})


def refusal(conf: Path, text: str) -> str:
    conf.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_dbd(conf, {})
    return str(caught.value)


def test_defaults(conf: Path) -> None:
    expected = DbdConfig(host="db", addr="db", storage_type="accounting_storage/postgresql", path=str(conf))
    assert load_dbd(conf, {}) == expected


def test_purge_times_have_units_and_months_are_the_default(conf: Path) -> None:
    config = with_lines(conf, "PurgeJobAfter=12\nPurgeStepAfter=90days\nPurgeTXNAfter=36Hours\nArchiveSteps=yes\n")
    assert config.purge_after == {"job": (12, "months"), "step": (90, "days"), "txn": (36, "hours")}
    assert config.archive == ("step",)


def test_sqlite_needs_the_path_of_its_file(conf: Path) -> None:
    text = "DbdHost=db\nStorageType=accounting_storage/sqlite\n"
    assert "dbd.conf:2: StorageType=sqlite needs StorageLoc to be the absolute path" in refusal(conf, text)
    conf.write_text(text + "StorageLoc=/var/lib/x.sqlite\n")
    assert load_dbd(conf, {}).storage_database == "/var/lib/x.sqlite"


def test_a_password_wants_a_private_file(conf: Path) -> None:
    conf.write_text(HEAD + "StoragePass=secret\n")
    conf.chmod(0o644)
    with pytest.raises(ConfigError, match=r"dbd\.conf permissions should be 600 is 644 accessible for group or others"):
        load_dbd(conf, {})
    conf.chmod(0o600)
    assert load_dbd(conf, {}).storage_password == "secret"
    assert "secret" not in repr(load_dbd(conf, {}))
    conf.chmod(0o640)
    assert load_dbd(conf, {}).storage_password == "secret"


def test_the_file_is_found_beside_the_main_file(conf: Path) -> None:
    assert load_dbd(None, {"SLURM_CONF": str(conf.parent / "slurm.conf")}).path == str(conf)
    assert load_dbd(None, {"MUSTER_CONF": str(conf.parent)}).path == str(conf)


def test_known_keys_without_effect_are_listed(conf: Path) -> None:
    config = with_lines(conf, "AuthType=auth/munge\nTrackSlurmctldDown=yes\n")
    assert [key for key, _, _ in config.without_effect] == ["AuthType", "TrackSlurmctldDown"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("StorageType=x/sqlite\nStorageLoc=/x\n", "dbd.conf: DbdHost needs to be specified"),
        ("DbdHost=db\n", "dbd.conf: StorageType needs to be specified (use accounting_storage/postgresql or"),
        (
            "DbdHost=db\nStorageType=accounting_storage/mysql\n",
            "dbd.conf:2: StorageType=accounting_storage/mysql is not",
        ),
        ("DbdHost=db\nStorageType=x/csv\n", "dbd.conf:2: StorageType=x/csv is not known"),
        (HEAD + "PurgeJobAfter=soon\n", 'dbd.conf:3: Bad value "soon" for PurgeJobAfter (write a number above zero'),
        (HEAD + "StoragePort=99999\n", 'dbd.conf:3: StoragePort="99999" is not a port'),
        (HEAD + "StoragePas=x\n", "dbd.conf:3: unrecognized key: StoragePas in dbd.conf (did you mean StoragePass?)"),
        (HEAD + "NodeName=n1\n", "dbd.conf:3: unrecognized key: NodeName in dbd.conf"),
    ],
)
def test_wrong_files_are_refused(conf: Path, text: str, sentence: str) -> None:
    assert sentence in refusal(conf, text)
