"""The agent's composition root: the one place that knows which adapters are in use."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc.aio

from muster import auth, rpc
from muster.errors import Denied, InvalidInput, Refused
from muster.log import set_up
from muster.service import Service
from muster.v1 import node_pb2, stepio_pb2_grpc
from muster.version import VERSION
from noded import hardware
from noded.cgroup import v2
from noded.cgroup.none import NoCgroups
from noded.gpu import nvml, table
from noded.hardware import Sizes
from noded.loops import stream
from noded.loops.reports import Outbox
from noded.loops.steps import StepKeeper
from noded.ports import Cgroups, Gpus
from noded.services.relay import Relay
from noded.services.stepio import StepIo, StepIoService, io_path
from noded.services.wire import Surroundings

log = logging.getLogger("noded")

MOST_SOCKET_PATH_BYTES = 100
"""A Unix socket's path has room for 107; `.io.new` is added to ours."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    name: str
    controller: str
    """host:port."""
    certificates: Path
    spool: Path
    socket: Path
    port: int = 0
    """Where other agents reach this one; 0: any free one."""
    addr: str = ""
    """This host's address for other agents; empty: the one that leads to the controller."""
    sizes: Sizes = field(default_factory=Sizes)
    gpus: str = ""
    """type:count or a file; empty: ask the driver."""
    config: str = ""
    """For SLURM_CONF of jobs; empty: unset."""
    cgroup: str = "auto"
    log_file: Path | None = None


class Agent:
    """noded, from its start to its end."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def live(self, service: Service) -> None:
        """Serve until told to stop; steps live on."""
        options = self._options
        set_up(f"noded[{options.name}]", file=options.log_file)
        _check(options)
        lock = lock_spool(options.spool)
        started_at = int(time.time())
        found = hardware.detect(options.sizes)
        gpus: Gpus = table.read(options.gpus) if options.gpus else await asyncio.to_thread(nvml.detect)
        cgroups, tree = _cgroups(options)
        identity = auth.identity_at(options.certificates, "compute", options.name)
        # One connection for the stream and one for people's calls: neither waits for the other.
        channels = [rpc.dial(identity, options.controller, "controller") for _ in range(2)]
        outbox = Outbox()
        around = Surroundings(socket=str(options.socket), config=options.config, append_output=False)
        keeper = StepKeeper(options.spool, cgroups, outbox, around)
        relay = Relay(channels[1], options.socket, socket.gethostname())
        stepio = StepIo(io_path(options.socket), options.name, identity, keeper)
        server = rpc.server()
        stepio_pb2_grpc.add_StepIoServicer_to_server(StepIoService(options.name, keeper), server)
        addr = options.addr or _address_towards(options.controller)
        port = rpc.listen(server, identity, f"{addr}:{options.port}")
        base = node_pb2.Register(
            protocol=stream.PROTOCOL,
            name=options.name,
            hostname=socket.gethostname(),
            addr=addr,
            port=port,
            version=VERSION,
            arch=hardware.architecture(),
            os=hardware.system(),
            boot_at=hardware.boot_at(),
            boot_id=hardware.boot_id(),
            agent_started_at=started_at,
            cpus=found.cpus,
            sockets=found.sockets,
            cores_per_socket=found.cores_per_socket,
            threads_per_core=found.threads_per_core,
            memory_mib=found.memory_mib,
            tmp_mib=found.tmp_mib,
            gpus=gpus.types(),
            io_socket=str(stepio.path),
            limits_off=cgroups.limits_off(),
        )
        try:
            await keeper.open()
            if tree is not None:
                tree.adopt_stepds_home(keeper.zygote_pid)
            await server.start()
            stepio.open()
            await relay.open()
            service.start(stepio.serve(), "stepio")
            service.start(self._stream(service, channels[0], base, keeper, outbox), "stream")
            log.info(
                "node %s: %d CPUs, %d MiB, %d GPUs, port %d, socket %s",
                options.name,
                found.cpus,
                found.memory_mib,
                len(base.gpus),
                port,
                options.socket,
            )
            for sentence in base.limits_off:
                log.warning("%s", sentence)
            service.ready()
            await service.stopping.wait()
        finally:
            await relay.close()
            await stepio.close()
            await server.stop(0.5)
            await keeper.close()
            for channel in channels:
                await channel.close()
            if tree is not None:
                tree.close()
            os.close(lock)

    async def _stream(
        self,
        service: Service,
        channel: grpc.aio.Channel,
        base: node_pb2.Register,
        keeper: StepKeeper,
        outbox: Outbox,
    ) -> None:
        def register() -> node_pb2.Register:
            message = node_pb2.Register()
            message.CopyFrom(base)
            return message

        def registered(said: node_pb2.Registered) -> None:
            keeper.around = replace(keeper.around, append_output=said.append_output)

        try:
            await stream.Stream(channel, register, keeper, outbox, registered).live()
        except Refused as error:
            service.fail(Denied(f"the controller refuses node {self._options.name} for good: {error}"))


def lock_spool(spool: Path) -> int:
    """Take the spool for this agent and give the lock's descriptor; InvalidInput when another has it, naming it."""
    try:
        spool.mkdir(parents=True, exist_ok=True, mode=0o711)
        descriptor = os.open(spool / "noded.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(f"cannot use the spool {spool}: {error.strerror}", "name another with --spool") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.read(descriptor, 64).decode(errors="replace").strip()
        os.close(descriptor)
        raise InvalidInput(
            f"another noded has the spool {spool}" + (f" (process {other})" if other else ""),
            "each node needs a spool of its own",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


def _check(options: Options) -> None:
    length = len(os.fsencode(options.socket))
    if length > MOST_SOCKET_PATH_BYTES:
        raise InvalidInput(
            f"the socket's path {options.socket} has {length} bytes, {MOST_SOCKET_PATH_BYTES} are the most",
            "choose a shorter one with --socket",
        )
    if not options.controller.rpartition(":")[0]:
        raise InvalidInput(f"--controller={options.controller}: this is no host:port")


def _cgroups(options: Options) -> tuple[Cgroups, v2.CgroupsV2 | None]:
    found = v2.find(options.name, options.spool, options.cgroup)
    if isinstance(found, str):
        return NoCgroups(found), None
    return found, found


def _address_towards(controller: str) -> str:
    """Give the address of this host from which the controller is reached: other agents reach us there too."""
    host, _, port = controller.rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # Connecting a datagram socket only looks the route up; nothing is sent.
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--controller={controller}: {error}", "give host:port of ctld") from error


def main(options: Options) -> int:
    """Run the agent and give its exit code."""
    from muster import service

    sys.setswitchinterval(0.05)
    return service.run(Agent(options).live)
