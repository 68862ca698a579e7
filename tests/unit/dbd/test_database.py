"""Where dbd.conf says that history lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from dbd.daemon import Options, _configured
from dbd.database import configured_url, open_database
from muster.config.load import load_dbd
from muster.errors import InvalidInput


def configured(folder: Path, text: str) -> Path:
    path = folder / "dbd.conf"
    path.write_text("DbdHost=head\n" + text)
    path.chmod(0o600)
    return path


def options(config: Path | None, database: str = "", listen: str = "") -> Options:
    return Options(database=database, controller="head:6817", certificates=Path("/none"), listen=listen, config=config)


def test_postgres_is_reached_as_configured(tmp_path: Path) -> None:
    text = "StorageType=accounting_storage/postgresql\nStorageHost=db1\nStoragePort=5433\nStorageLoc=acct\n"
    config = load_dbd(configured(tmp_path, text + "StorageUser=muster\nStoragePass=secret\nDbdPort=7000\n"))
    url = configured_url(config)
    assert url.render_as_string(hide_password=False) == "postgresql://muster:secret@db1:5433/acct"
    assert "secret" not in str(url)
    assert _configured(options(tmp_path / "dbd.conf"))[1] == "127.0.0.1:7000"


def test_a_socket_folder_and_a_file_are_hosts_too(tmp_path: Path) -> None:
    text = "StorageType=accounting_storage/postgresql\nStorageHost=unix:/run/postgresql\n"
    config = load_dbd(configured(tmp_path, text))
    assert str(configured_url(config)) == "postgresql:///slurm_acct_db?host=%2Frun%2Fpostgresql"
    file = tmp_path / "history.db"
    config = load_dbd(configured(tmp_path, f"StorageType=accounting_storage/sqlite\nStorageLoc={file}\n"))
    engine = open_database(configured_url(config))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select 1").scalar_one() == 1
    engine.dispose()
    assert file.exists()


def test_a_script_gives_the_password_or_is_named(tmp_path: Path) -> None:
    script = tmp_path / "token"
    script.write_text("#!/bin/sh\necho TOKEN=abc\n")
    script.chmod(0o700)
    text = f"StorageType=accounting_storage/postgresql\nStorageUser=m\nStoragePassScript={script}\n"
    config = load_dbd(configured(tmp_path, text))
    assert configured_url(config).password == "abc"
    script.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(InvalidInput, match=r"token printed no TOKEN= line \(exit code 3\)"):
        configured_url(config)


def test_two_sources_of_the_database_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="both name the database"):
        _configured(options(tmp_path, database="sqlite:///x"))
    assert _configured(options(None, database="sqlite:///x")) == ("sqlite:///x", "127.0.0.1:6819")


def test_a_file_that_was_removed_takes_nothing_in_and_one_put_in_its_place_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, backup = tmp_path / "history.db", tmp_path / "backup.db"
    engine = open_database(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.exec_driver_sql("create table taken (number integer)")
    engine.dispose()
    shutil.copy(file, backup)
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into taken values (1)")
    for left in tmp_path.glob("history.db*"):
        left.unlink()
    with pytest.raises(OperationalError, match="no such table"), engine.begin() as connection:
        connection.exec_driver_sql("insert into taken values (2)")
    assert f"{file} was removed or replaced" in caplog.text
    for left in tmp_path.glob("history.db*"):
        left.unlink()
    shutil.copy(backup, file)
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into taken values (3)")
        assert connection.exec_driver_sql("select number from taken").scalars().all() == [3]
    engine.dispose()


def test_a_url_of_another_kind_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidInput, match="kind 'mysql'") as caught:
        open_database("mysql://m:secret@db/acct")
    assert "secret" not in str(caught.value)
