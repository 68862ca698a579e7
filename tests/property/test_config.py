"""Whatever stands in the files, reading them gives a configuration or a ConfigError, never another exception."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.config.keys import Key, Table
from muster.config.linekeys import BLOCK, CGROUP, DOWN_NODES, GRES, NODE, NODE_SET, PARTITION, RING, SWITCH
from muster.config.load import parse
from muster.config.render import render_config
from muster.config.slurmkeys import GLOBALS
from muster.config.yamlsubset import YamlError, parse_yaml
from muster.errors import ConfigError

HEAD = "ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu\nNodeName=n[1-3] Gres=gpu:2\n"

values = st.one_of(
    st.text(max_size=12),
    st.text("0123456789-:,.[]{}=\"'kKmMgGuUnN*/\\# \u00b2\u0663", max_size=12),
    st.sampled_from([
        "yes", "no", "0", "1", "-1", "UNLIMITED", "INFINITE", "n1", "n[1-3]", "ALL", "DEFAULT", "gpu:2", "1-0", "4G",
        "18446744073709551616", "NONE", "OFF", "CANCEL", "feature{x}", "/a/b", "65536", '""', "a,b", "GANG,SUSPEND",
        "x" * 300, "9" * 5000, "1e400", "gpu=1", "%c", "s[1-2]", "2-1",
    ]),
)  # fmt: skip


def lines(*tables: Table) -> st.SearchStrategy[str]:
    """Lines of known keys with strange values; the first key of a table begins its record lines."""
    keys: list[Key] = [row for table in tables for row in table.rows]
    pair = st.tuples(st.sampled_from([row.name for row in keys]), values).map("=".join)
    begun = st.tuples(st.sampled_from([table.rows[0].name for table in tables]), values).map("=".join)
    line = st.lists(pair, min_size=1, max_size=5).map(" ".join)
    record = st.tuples(begun, line).map(" ".join)
    return st.lists(st.one_of(line, record), max_size=6).map("\n".join)


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=200))
def test_arbitrary_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text)
    with contextlib.suppress(ConfigError):
        parse(HEAD, gres=text, topology=text, cgroup=text)
    with contextlib.suppress(ConfigError):
        parse(HEAD, topology_yaml=text)


@settings(deadline=None, max_examples=400)
@given(lines(GLOBALS))
def test_global_keys_are_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        render_config(parse(HEAD + text))


@settings(deadline=None, max_examples=400)
@given(lines(NODE, NODE_SET, DOWN_NODES, PARTITION))
def test_record_lines_are_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(HEAD + text)


@settings(deadline=None, max_examples=300)
@given(lines(GRES), lines(SWITCH, BLOCK, RING), lines(CGROUP))
def test_companion_files_are_read_or_refused(gres: str, topology: str, cgroup: str) -> None:
    for texts in ({"gres": gres}, {"topology": topology}, {"cgroup": cgroup}):
        with contextlib.suppress(ConfigError):
            parse(HEAD, **texts)


@settings(deadline=None, max_examples=400)
@given(st.text("-: \n#[]{}'\"ab1,\t", max_size=60))
def test_yaml_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(YamlError):
        parse_yaml(text)


@given(st.lists(st.tuples(st.sampled_from(["KillWait", "MinJobAge", "MaxStepCount"]), st.integers(1, 60000))))
def test_the_last_value_of_a_key_holds(given_pairs: list[tuple[str, int]]) -> None:
    config = parse(HEAD + "\n".join(f"{name}={value}" for name, value in given_pairs))
    last = dict(given_pairs)
    assert config.kill_wait_seconds == last.get("KillWait", 30)
    assert config.min_job_age_seconds == last.get("MinJobAge", 300)
    assert config.max_step_count == last.get("MaxStepCount", 40000)
