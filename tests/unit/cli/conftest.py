"""Commands run against a controller's door that a thread of the test serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A controller with four nodes, over a state in memory; no node is connected and nothing is scheduled."""
    with serving(tmp_path) as one:
        yield one
