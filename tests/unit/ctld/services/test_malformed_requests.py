"""What is wrong with a request is said in one sentence, and the controller lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local_socket import MAX_BODY_BYTES
from tests.serving import Served, raw, request, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as one:
        yield one
        # Whatever was sent, others are served.
        good = request("POST", "/v1/jobs", framed(b'{"work_dir": "/"}', b"#!/bin/sh\n", b""))
        status, answer = parsed(raw(one.path, good))
        assert (status, answer["cluster"]) == (200, "cluster"), answer


def framed(body: bytes, script: bytes, environment: bytes) -> bytes:
    return b"MSTR1 %d %d %d\n" % (len(body), len(script), len(environment)) + body + script + environment


def parsed(answer: bytes) -> tuple[int, dict[str, object]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    found = json.loads(body)
    assert isinstance(found, dict)
    return int(head.split()[1]), found


def ask(served: Served, method: str, target: str, body: bytes) -> tuple[int, str, str]:
    """Give status, sentence and hint of a refusal."""
    status, answer = parsed(raw(served.path, request(method, target, body)))
    error = answer["error"]
    assert isinstance(error, dict), answer
    return status, str(error["sentence"]), str(error["hint"])


WITH = b'{"work_dir": "/", "script": "#!/bin/sh\\n", '
SCRIPT = b"#!/bin/sh\n"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "Job script not specified"),
        (b"garbage", 400, "the request's body is no JSON"),
        (b"\0\0\0", 400, "the request's body is no JSON"),
        (b"[" * 200_000, 400, "the request cannot be read: expected object, got array"),
        (b'{"nodes": ' + b"[" * 200_000, 400, "field nodes[0] cannot be read"),
        (b'{"echo": ' + b'{"a":' * 100_000, 400, "field echo[...] cannot be read"),
        (b'{"job_name": "\xff\xfe"}', 400, "the request's body is no JSON: Invalid UTF-8"),
        (b'{"script": 5}', 400, "field script cannot be read: expected str, got int"),
        (WITH + b'"colour": "red"}', 400, "the request has no field colour"),
        (WITH + b'"ntasks": -1}', 400, "field ntasks cannot be read"),
        (WITH + b'"ntasks": 99999999999999999999}', 400, "field ntasks cannot be read"),
        (WITH + b'"time_limit": 1e400}', 400, "field time_limit cannot be read"),
        (WITH + b'"nodes": [3, 1]}', 400, "Node count specification invalid"),
        (WITH + b'"job_name": "' + b"x" * 5000 + b'"}', 413, "field job_name is over its bound of 1024 characters"),
        (WITH + b'"environment": ["A=b\\u0000c"]}', 400, "the environment's entry 'A=b\\x00c' holds a NUL byte"),
        (WITH + b'"environment": ["nothing"]}', 400, "the environment's entry 'nothing' is not NAME=value"),
        (b'{"work_dir": "/", "script": "#!/bin/sh\\na\\u0000b"}', 400, "do not allow scripts|does not allow scripts"),
        (b'{"script": "#!/bin/sh\\n"}', 400, "Job cannot be submitted without the current working directory"),
        (b"MSTR1 ", 400, "the request's header line is torn"),
        (b"MSTR1 5 5\n{}", 400, "the request's header line is torn"),
        (b"MSTR1 -1 3 3\n{}", 400, "the request's header line is torn"),
        (b"MSTR1 2 0 0" + b" " * 500 + b"\n{}", 400, "the request's header line is torn"),
        (b"MSTR1 999999999999 0 0\n{}", 400, "the request announces 999999999999+0+0 bytes and brings 2"),
        (b"MSTR1 2 10 0\n{}#!/bin", 400, "the request announces 2+10+0 bytes and brings 8"),
        (framed(b'{"work_dir": "/"}', SCRIPT, b"A=b\0C=d"), 400, "the environment's last entry has no NUL behind it"),
        (framed(b'{"work_dir": "/"}', SCRIPT, b"=x\0"), 400, "the environment's entry '=x' is not NAME=value"),
        (framed(b'{"work_dir": "/"}', b"#!/bin/sh\n\0", b""), 400, "does not allow scripts"),
        (framed(b'{"work_dir": "/"}', b"x" * (5 << 20), b""), 413, "Pathname of a file, directory or other parameter"),
        (framed(b'{"work_dir": "/"}', SCRIPT, b"A=" + b"x" * 200_000 + b"\0"), 413, "other parameter too long"),
        (framed(b'{"work_dir": "/"}', SCRIPT, b"A=b\0" * 70_000), 413, "other parameter too long"),
        (framed(b'{"work_dir": "/"}', SCRIPT, b"A=b\0" * (5 << 20)), 413, "other parameter too long"),
    ],
    ids=lambda value: str(value[:40]) if isinstance(value, bytes) else None,
)
def test_a_submission_that_cannot_be_read_is_refused_in_a_sentence(
    served: Served, body: bytes, status: int, said: str
) -> None:
    heard, sentence, hint = ask(served, "POST", "/v1/jobs", body)
    assert heard == status
    assert any(part in sentence for part in said.split("|")), sentence
    assert "\n" not in sentence + hint
    assert len(sentence) + len(hint) < 500
    assert not served.state.jobs


@pytest.mark.parametrize(
    ("route", "body", "status", "said"),
    [
        ("POST /v1/jobs/cancel", b"{}", 400, "at least one job id or filter is required"),
        ("POST /v1/jobs/cancel", b'{"ids": ["x"]}', 400, "Invalid job id x"),
        ("POST /v1/jobs/cancel", b'{"ids": [""]}', 400, "Invalid job id "),
        ("POST /v1/jobs/cancel", b'{"ids": ["5_[0-999999999]"]}', 400, "Invalid job id 5_[0-999999999]"),
        ("POST /v1/jobs/cancel", b'{"ids": ["' + b"1," * 10_001 + b'"]}', 400, "Invalid job id "),
        ("POST /v1/jobs/cancel", b'{"ids": ["1"], "signal": "x"}', 400, "Unknown signal: 'x'"),
        ("POST /v1/jobs/cancel", b'{"state": "ODD"}', 400, "Invalid job state specified: ODD"),
        ("POST /v1/jobs/cancel", b'{"user": "no such user"}', 400, "Invalid user name: no such user"),
        ("POST /v1/jobs/cancel?cluster=x", b'{"ids": ["1"]}', 400, "No cluster 'x' known"),
        ("POST /v1/jobs/hold", b"{}", 400, "the request cannot be read: object missing required field"),
        ("POST /v1/jobs/hold", b'{"ids": ""}', 400, "JobID must not be an empty string"),
        ("POST /v1/jobs/hold", b'{"ids": "1.0"}', 400, "Invalid job id specified"),
        ("POST /v1/jobs/hold", b'{"ids": "' + b"9" * 2_000_000 + b'"}', 413, "field ids is over its bound"),
        ("POST /v1/jobs/update", b"{}", 404, "Invalid job id specified"),
        ("POST /v1/jobs/update", b'{"ids": "1", "nice": 5000000000}', 400, "field nice cannot be read"),
        ("GET /v1/jobs/x/wait", b"", 400, "JobID includes unexpected non-numeric characters"),
        ("GET /v1/jobs/1/wait?for=fun", b"", 400, "a job has no 'fun' to wait for"),
        ("GET /v1/jobs/1/wait?seconds=-1", b"", 400, "seconds='-1' is no number of seconds"),
        ("GET /v1/jobs/1/wait?seconds=nan", b"", 400, "seconds='nan' is no number of seconds"),
        ("GET /v1/jobs/%FF%00/script", b"", 400, "JobID includes unexpected non-numeric characters"),
        ("GET /v1/jobs/1/script", b"", 404, "Invalid job id specified"),
        ("POST /v1/nodes/update", b"{}", 403, "Access/permission denied"),
        ("GET /v1/nothing", b"", 404, "there is no route GET /v1/nothing"),
        ("PUT /v1/jobs", b"{}", 404, "there is no route PUT /v1/jobs"),
    ],
)
def test_other_requests_that_cannot_be_read_are_refused_in_a_sentence(
    served: Served, route: str, body: bytes, status: int, said: str
) -> None:
    method, _, target = route.partition(" ")
    heard, sentence, _ = ask(served, method, target, body)
    assert (heard, said in sentence) == (status, True), sentence
    assert len(sentence) < 300


def test_a_body_over_the_bound_is_refused_before_it_is_read(served: Served) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BODY_BYTES + 1}\r\n\r\n".encode()
    status, answer = parsed(raw(served.path, head))
    assert status == 413
    assert str(MAX_BODY_BYTES) in str(answer["error"])


def test_pieces_without_a_length_are_counted(served: Served) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    status, _ = parsed(raw(served.path, head + piece * (MAX_BODY_BYTES // 0x100000 + 2) + b"0\r\n\r\n"))
    assert status == 413


@pytest.mark.parametrize(
    "data",
    [
        b"\0\1\2\3\r\n\r\n",
        b"MSTR1 1 1 1\n{}",
        b"GET\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"",
    ],
    ids=["bytes", "frame", "no target", "no length", "cut off", "long target", "nothing"],
)
def test_what_is_no_http_ends_the_connection_and_nothing_else(served: Served, data: bytes) -> None:
    answer = raw(served.path, data, half_close=True)
    assert answer == b"" or answer.split()[1].startswith(b"4")
