"""Who may do what, on real daemons: the kernel says who calls, certificates say which host; nothing else is believed.

Commands cannot run as another user where Python lies in a closed folder, so another user is an effective uid around a
raw call on the socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import pytest

from cli.cluster import Cluster, Plan
from muster import auth, rpc
from muster.errors import Denied, MusterError
from muster.local_call import LocalClient
from muster.v1 import accounting_pb2, accounting_pb2_grpc, node_pb2, node_pb2_grpc, stepio_pb2, stepio_pb2_grpc
from tests.e2e.conftest import SMALL, User, acting_as, running, until

NOBODY = 65534
STRANGER = 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as other users, which needs root")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A small cluster, for the tests of this module."""
    yield from running(SMALL)


@dataclass(frozen=True, slots=True)
class Doors:
    """The sockets of a cluster."""

    controller: LocalClient
    agent: LocalClient

    def __iter__(self) -> Iterator[LocalClient]:
        return iter((self.controller, self.agent))


@pytest.fixture
def doors(cluster: Cluster) -> Doors:
    """The controller's own socket, and an agent's that relays."""
    return Doors(LocalClient(cluster.socket), LocalClient(cluster.node_socket("node1")))


def plan_of(cluster: Cluster) -> Plan:
    """Give how the cluster was made."""
    plan = cluster.plan()
    assert plan is not None
    return plan


def mutations(job: int) -> dict[str, tuple[str, str, object]]:
    """Every call that changes somebody's job or reads what is the owner's alone."""
    return {
        "cancel": ("POST", "/v1/jobs/cancel", {"ids": [str(job)]}),
        "signal": ("POST", "/v1/jobs/cancel", {"ids": [str(job)], "signal": "USR1"}),
        "hold": ("POST", "/v1/jobs/hold", {"ids": str(job)}),
        "release": ("POST", "/v1/jobs/release", {"ids": str(job)}),
        "requeue": ("POST", "/v1/jobs/requeue", {"ids": str(job)}),
        "update": ("POST", "/v1/jobs/update", {"ids": str(job), "comment": "mine now"}),
        "script": ("GET", f"/v1/jobs/{job}/script", None),
        "make a step": ("POST", f"/v1/jobs/{job}/steps", {"name": "x", "argv": ["id"], "overlap": True}),
        "read a step": ("GET", f"/v1/jobs/{job}/steps/0", None),
        "signal a step": ("POST", f"/v1/jobs/{job}/steps/0/signal?signal=KILL", None),
        "cancel a step": ("POST", f"/v1/jobs/{job}/steps/0/cancel", None),
    }


ADMIN = {
    "drain": ("POST", "/v1/nodes/update", {"nodes": "node1", "state": "DRAIN", "reason": "x"}),
    "down": ("POST", "/v1/nodes/update", {"nodes": "node1", "state": "DOWN", "reason": "x"}),
    "shutdown": ("POST", "/v1/shutdown", None),
}


@pytest.mark.root
@needs_root
def test_another_users_job_can_neither_be_changed_nor_read_through_any_door(user: User, doors: Doors) -> None:
    job = user.submit("-o", "/dev/null", "--requeue", script="#!/bin/sh\nsrun sleep 300\n")
    until(lambda: f"{job}.0" in user.ok("squeue", "-h", "-s", "-o", "%i").split(), "the step", user.describe)
    before = user.ok("scontrol", "-o", "show", "job", str(job)).split(" RunTime=")[0]
    for door in doors:
        allowed = []
        for what, (method, target, body) in mutations(job).items():
            with acting_as(NOBODY):
                try:
                    door.call(method, target, body)
                except Denied:
                    continue
            allowed.append(what)
        assert allowed == []
    assert user.ok("scontrol", "-o", "show", "job", str(job)).split(" RunTime=")[0] == before
    assert f"{job}.0" in user.ok("squeue", "-h", "-s", "-o", "%i").split()
    with acting_as(NOBODY):
        doors.controller.call("POST", "/v1/jobs/cancel", {"user": "root"})
        doors.agent.call("POST", "/v1/jobs/cancel", {"user": "root"})
    assert user.state(job) == "RUNNING", "a filter reaches only what is the caller's"
    user.ok("scancel", str(job))


@pytest.mark.root
@needs_root
def test_everybody_may_do_all_that_with_his_own_job_through_both_doors(user: User, doors: Doors) -> None:
    asked = {"script": "#!/bin/sh\nsleep 300\n", "work_dir": "/tmp", "output": "/dev/null", "hold": True}
    for door in doors:
        with acting_as(NOBODY):
            job = door.call("POST", "/v1/jobs", asked)["job_id"]
            door.call("POST", "/v1/jobs/update", {"ids": str(job), "comment": "mine"})
            assert door.call("GET", f"/v1/jobs/{job}/script")
            door.call("POST", "/v1/jobs/release", {"ids": str(job)})
        assert user.wait_for(job, "RUNNING")
        assert user.ok("squeue", "-h", "-j", str(job), "-o", "%U %k") == f"{NOBODY} mine\n"
        with acting_as(STRANGER), pytest.raises(Denied):
            door.call("POST", "/v1/jobs/cancel", {"ids": [str(job)]})
        with acting_as(NOBODY):
            door.call("POST", "/v1/jobs/cancel", {"ids": [str(job)]})
        assert user.ended(job) == "CANCELLED"


@pytest.mark.root
@needs_root
def test_a_job_runs_as_its_owner(user: User, doors: Doors) -> None:
    out = user.folder / "who"
    out.touch(mode=0o666)
    out.chmod(0o666)
    for folder in (user.folder, user.folder.parent, user.folder.parent.parent):
        folder.chmod(0o755)
    script = '#!/bin/sh\nid -u; id -g; echo "$SLURM_JOB_UID $SLURM_JOB_GID"; cat /etc/shadow && echo read it\n'
    with acting_as(NOBODY):
        job = doors.controller.call(
            "POST", "/v1/jobs", {"script": script, "work_dir": "/tmp", "output": str(out), "error": "/dev/null"}
        )["job_id"]
    user.ended(job)
    gid = os.getegid()
    assert out.read_text() == f"{NOBODY}\n{gid}\n{NOBODY} {gid}\n"


@pytest.mark.root
@needs_root
def test_a_uid_inside_a_message_is_not_believed(user: User, doors: Doors) -> None:
    asked = {"script": "#!/bin/sh\ntrue\n", "work_dir": "/", "output": "/dev/null", "hold": True}
    for door in doors:
        for more in ({"uid": 0}, {"user": "root"}, {"gid": 0}, {"admin": True}):
            with acting_as(NOBODY), pytest.raises(MusterError, match="has no field"):
                door.call("POST", "/v1/jobs", {**asked, **more})
        with acting_as(NOBODY):
            job = door.call("POST", "/v1/jobs", {**asked, "environment": ["USER=root", "SLURM_JOB_UID=0"]})["job_id"]
        assert user.ok("squeue", "-h", "-j", str(job), "-o", "%U") == f"{NOBODY}\n"
    for path in (user.cluster.socket, user.cluster.node_socket("node1")):
        with acting_as(NOBODY):
            said = with_headers(path, "X-Remote-User: root", "Authorization: Basic cm9vdDo=", "X-Muster-Uid: 0")
        assert said["error"]["code"] == "DENIED"
    user.ok("scancel", "-u", str(NOBODY))


def with_headers(path: Path, *headers: str) -> dict[str, dict[str, str]]:
    """Ask for what an administrator may do, with headers that claim to be one."""
    body = json.dumps({"nodes": "node1", "state": "DRAIN", "reason": "x"}).encode()
    lines = ["POST /v1/nodes/update HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
    found: dict[str, dict[str, str]] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


@pytest.mark.parametrize("what", ADMIN)
def test_nobody_is_an_administrator_through_an_agent(user: User, doors: Doors, what: str) -> None:
    method, target, body = ADMIN[what]
    with pytest.raises(Denied):
        doors.agent.call(method, target, body)
    done = user.run(
        *("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=x"),
        env={"MUSTER_SOCKET": str(user.cluster.node_socket("node1"))},
    )
    assert (done.code, done.out) == (1, "")
    assert "Access/permission denied" in done.err or "Invalid user id" in done.err
    assert user.cluster.pid("ctld")
    assert user.ok("sinfo", "-h", "-n", "node1", "-o", "%t") == "idle\n"


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("what", ADMIN)
def test_ordinary_users_are_no_administrators_on_the_controllers_own_socket(doors: Doors, what: str) -> None:
    method, target, body = ADMIN[what]
    with acting_as(NOBODY), pytest.raises(Denied):
        doors.controller.call(method, target, body)


def test_priority_and_negative_nice_are_an_administrators(user: User, doors: Doors) -> None:
    """Root's calls that come through an agent are an ordinary user's."""
    job = user.submit("-H", "-o", "/dev/null")
    for change in ({"priority": 4000000000}, {"nice": -100}):
        with pytest.raises(MusterError):
            doors.agent.call("POST", "/v1/jobs/update", {"ids": str(job), **change})
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%Q %y") == "0 0\n"
    user.ok("scancel", str(job))


@pytest.mark.root
@needs_root
def test_what_an_administrator_holds_only_an_administrator_releases(user: User, doors: Doors) -> None:
    asked = {"script": "#!/bin/sh\ntrue\n", "work_dir": "/tmp", "output": "/dev/null", "begin": int(time.time()) + 3600}
    with acting_as(NOBODY):
        job = doors.agent.call("POST", "/v1/jobs", asked)["job_id"]
    user.ok("scontrol", "hold", str(job))
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%r") == "JobHeldAdmin\n"
    for door in doors:
        with acting_as(NOBODY), pytest.raises(Denied):
            door.call("POST", "/v1/jobs/release", {"ids": str(job)})
    user.ok("scontrol", "release", str(job))
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%r") == "BeginTime\n"
    user.ok("scancel", str(job))


# Between daemons.


def listening(pid: int) -> list[str]:
    """Give the TCP addresses on which a process listens, as the kernel writes them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.append(words[1])
    return found


def children(pid: int) -> list[int]:
    """Give a process and all below it."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").iterdir():
            try:
                found += map(int, (task / "children").read_text().split())
            except OSError:
                continue  # the thread has ended
    return found


def test_nothing_listens_beyond_the_loopback(user: User) -> None:
    job = user.submit("-o", "/dev/null", script="#!/bin/sh\nsrun sleep 300\n")
    until(lambda: f"{job}.0" in user.ok("squeue", "-h", "-s", "-o", "%i").split(), "the step", user.describe)
    plan = plan_of(user.cluster)
    ports = set()
    for daemon in user.cluster.daemons(plan):
        for pid in children(user.cluster.pid(daemon)):
            for address in listening(pid):
                host, port = address.split(":")
                assert host in ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
                ports.add(int(port, 16))
    assert ports == set(plan.ports.values()), "each daemon has its one port, and nobody another"
    user.ok("scancel", str(job))


def refused_by(attempt: Callable[[grpc.aio.Channel], Awaitable[object]], channel: grpc.aio.Channel) -> MusterError:
    """Make a call that must fail and give its error."""

    async def calling() -> MusterError:
        try:
            while True:
                try:
                    await asyncio.wait_for(attempt(channel), 30)
                except grpc.aio.AioRpcError as failure:
                    # A message that is written while the refusal arrives makes grpc.aio lose the refusal's status.
                    if failure.details() == "Internal error from Core":
                        continue
                    return rpc.from_status(failure)
                except MusterError as error:
                    return error
                pytest.fail("the call was carried out")
        finally:
            await channel.close()

    return asyncio.get_event_loop().run_until_complete(calling())


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop for calls between daemons."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


async def relayed(channel: grpc.aio.Channel) -> object:
    """Ask as an agent would, for root."""
    call = node_pb2.CallRequest(uid=0, gid=0, pid=1, host="x", method="POST", path="/v1/shutdown", body=b"")
    reply = await node_pb2_grpc.RelayStub(channel).Call(call)
    if reply.status != 200:
        raise Denied(reply.body.decode())
    return reply


async def followed(channel: grpc.aio.Channel) -> object:
    """Ask for the accounts."""
    call = accounting_pb2_grpc.FollowersStub(channel).Follow()
    await call.write(accounting_pb2.FollowerMessage())
    return await call.read()


async def asked_history(channel: grpc.aio.Channel) -> object:
    """Ask dbd."""
    return await accounting_pb2_grpc.AccountingStub(channel).Query(accounting_pb2.HistoryQuery())


async def attached(channel: grpc.aio.Channel) -> object:
    """Ask an agent for a step's input and output."""
    call = stepio_pb2_grpc.StepIoStub(channel).Attach()
    await call.write(stepio_pb2.IoChunk(attach=stepio_pb2.AttachTo(job_id=1, node="node1", uid=0)))
    return await call.read()


def registered(name: str) -> Callable[[grpc.aio.Channel], Awaitable[object]]:
    """Register as a node of this name."""

    async def connect(channel: grpc.aio.Channel) -> object:
        call = node_pb2_grpc.NodesStub(channel).Connect()
        register = node_pb2.Register(protocol=1, name=name, cpus=8, sockets=1, cores_per_socket=8, threads_per_core=1)
        await call.write(node_pb2.NodeMessage(register=register))
        answer = await call.read()
        if isinstance(answer, node_pb2.ControllerMessage) and answer.WhichOneof("body") == "refusal":
            raise Denied(answer.refusal.sentence)
        return answer

    return connect


Attempt = Callable[[grpc.aio.Channel], Awaitable[object]]
ATTEMPTS: dict[str, list[Attempt]] = {
    "ctld": [relayed, followed, registered("node1")],
    "dbd": [asked_history],
    "node1": [attached],
}
ROLE = {"ctld": "controller", "dbd": "accounting", "node1": "compute"}


@pytest.mark.parametrize("daemon", ATTEMPTS)
@pytest.mark.usefixtures("loop")
def test_without_a_certificate_of_the_cluster_no_call_gets_through(user: User, tmp_path: Path, daemon: str) -> None:
    address = f"127.0.0.1:{plan_of(user.cluster).ports[daemon]}"
    authority = (user.cluster.folder / "certs" / "ca.crt").read_bytes()
    foreign = tmp_path / "foreign"
    auth.create_authority(foreign)
    stranger = auth.issue(foreign, "controller", "ctld")
    options = [("grpc.ssl_target_name_override", auth.server_name(ROLE[daemon]))]

    def channels() -> Iterator[grpc.aio.Channel]:
        yield grpc.aio.insecure_channel(address)
        yield grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority), options=options)
        key, certificate, _ = stranger.read()
        yield grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate), options)

    for attempt in ATTEMPTS[daemon]:
        for channel in channels():
            assert isinstance(refused_by(attempt, channel), MusterError)
    assert user.cluster.pid(daemon)


@pytest.mark.usefixtures("loop")
def test_a_server_with_a_foreign_certificate_is_not_spoken_to(user: User, tmp_path: Path) -> None:
    auth.create_authority(tmp_path / "foreign")
    identity = auth.issue(tmp_path / "foreign", "compute", "node1")
    channel = rpc.dial(identity, f"127.0.0.1:{plan_of(user.cluster).ports['ctld']}", "controller")
    assert isinstance(refused_by(relayed, channel), MusterError)


@pytest.mark.parametrize(
    ("role", "name", "attempt", "daemon"),
    [
        ("compute", "node1", registered("node2"), "ctld"),
        ("compute", "node1", registered("nosuch"), "ctld"),
        ("accounting", "dbd", registered("node1"), "ctld"),
        ("controller", "ctld", registered("node1"), "ctld"),
        ("accounting", "dbd", relayed, "ctld"),
        ("controller", "ctld", relayed, "ctld"),
        ("compute", "node1", relayed, "ctld"),
        ("compute", "node1", followed, "ctld"),
        ("controller", "ctld", followed, "ctld"),
        ("compute", "node1", asked_history, "dbd"),
        ("accounting", "dbd", asked_history, "dbd"),
        ("accounting", "dbd", attached, "node1"),
        ("controller", "ctld", attached, "node1"),
    ],
)
@pytest.mark.usefixtures("loop")
def test_a_certificate_does_what_its_role_and_name_may_and_no_more(
    user: User, role: str, name: str, attempt: Attempt, daemon: str
) -> None:
    identity = auth.identity_at(user.cluster.folder / "certs", role, name)
    address = f"127.0.0.1:{plan_of(user.cluster).ports[daemon]}"
    error = refused_by(attempt, rpc.dial(identity, address, ROLE[daemon]))
    assert isinstance(error, Denied), error
    assert len(error.sentence) > 10
    assert user.ok("sinfo", "-h", "-o", "%D %t") == "2 idle\n", "the nodes are still there"


def test_keys_are_readable_by_their_owner_only(cluster: Cluster) -> None:
    keys = list((cluster.folder / "certs").glob("*.key"))
    assert len(keys) == 5
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    assert (cluster.folder / "state").stat().st_mode & 0o777 == 0o700
