"""Every option that sbatch and srun act on is either sent to the controller or acts in the command."""

from __future__ import annotations

import pytest

from cli import sbatch, srun
from muster.api import JobRequest
from muster.options import key_of, rows_of
from muster.options_table import ACTED


@pytest.mark.parametrize(("command", "here"), [("sbatch", sbatch._HERE), ("srun", srun._HERE)])
def test_an_option_that_does_not_act_in_the_command_is_one_that_the_controller_knows(
    command: str, here: frozenset[str]
) -> None:
    rows = rows_of(command)[0]
    acted = {key_of(rows[option]) for option in ACTED[command] if option in rows}
    assert here <= acted
    assert acted - here <= set(JobRequest.__struct_fields__)
