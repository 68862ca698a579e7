"""The controller's composition root: the one place that knows which adapters are in use."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ctld import associations, configure
from ctld.collector import keep_pauses_short
from ctld.core.model import Caller
from ctld.core.state import State
from ctld.loops.checkpoints import Checkpoints
from ctld.loops.deadlines import Deadlines
from ctld.loops.dispatch import Dispatcher
from ctld.loops.links import Links
from ctld.loops.planner import INTERVAL_SECONDS, MOST_SECONDS, Planner
from ctld.loops.priority import Priorities
from ctld.loops.schedule import Scheduler
from ctld.loops.statistics import Statistics
from ctld.services import actions, history, status, steps
from ctld.services import priorities as priority_routes
from ctld.services import statistics as statistics_routes
from ctld.services.door import Door
from ctld.services.followers import FollowersService
from ctld.services.nodes import NodesService, RelayService
from ctld.services.views import routes as views
from ctld.store.opening import open_directory
from muster import auth, rpc
from muster.clock import SystemClock
from muster.config.load import load
from muster.config.records import ClusterConfig
from muster.config.render import render_config
from muster.errors import Denied
from muster.local_socket import LocalSocket
from muster.log import set_up
from muster.service import Service, raise_open_files
from muster.v1 import accounting_pb2_grpc, node_pb2, node_pb2_grpc
from muster.version import VERSION


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    config: Path | None
    socket: Path
    certificates: Path
    state_dir: Path | None
    listen: str
    """host:port for nodes and dbd; empty: loopback on the configured port."""
    accounting: str
    """host:port of dbd; empty: as configured."""
    log_file: Path | None


class Controller:
    """ctld, from its start to its end."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clock = SystemClock()

    async def live(self, service: Service) -> None:
        """Serve until told to stop."""
        options = self._options
        config = load(options.config)
        log = set_up("ctld", file=options.log_file, level=_level(config))
        for sentence in config.warnings:
            log.warning("%s", sentence)
        for key, file, line in config.without_effect:
            log.info("%s:%d: %s has no effect in this release", file, line, key)
        accounts, remarks = associations.command(config)
        for sentence in remarks:
            log.warning("%s", sentence)
        # Threads that write the journal wait for the interpreter's lock while the loop is busy: make that short.
        sys.setswitchinterval(0.001)
        raise_open_files()
        opened = open_directory(options.state_dir or Path(config.state_dir))
        store = opened.store
        opened.journal.on_failure(service.fail)
        store.on_failure(service.fail)
        keep_pauses_short()
        links = Links()
        dispatcher = Dispatcher(store.state, links)
        statistics = Statistics(self._clock)
        scheduler = Scheduler(store, links, self._clock, statistics=statistics)
        priorities = Priorities(store, self._clock)
        parameters = config.scheduler_parameters
        planner = Planner(
            store,
            links,
            self._clock,
            interval_seconds=int(parameters.get("bf_interval") or INTERVAL_SECONDS),
            most_seconds=int(parameters.get("bf_max_time") or MOST_SECONDS),
            name=str(opened.directory),
            statistics=statistics,
        )
        store.subscribe(dispatcher.take)
        store.subscribe(statistics.take)
        await store.commit(configure.command(config), at=self._clock.now())
        await store.commit(accounts, at=self._clock.now())
        priorities.prime()

        identity = auth.identity_at(options.certificates, "controller", "ctld")
        accounting_address = options.accounting or _accounting_address(config)
        followers = FollowersService(store, config.cluster_name, expected=bool(accounting_address))
        past = history.History(store, followers, identity, accounting_address, self._clock)
        door = Door(statistics=statistics)
        doing = actions.Context(store, dispatcher, self._clock, opened.blobs, service.stopping.set)
        door.add(actions.routes(doing))
        door.add(steps.routes(steps.Context(store, links, dispatcher, opened.blobs, self._clock)))
        door.add(
            views.routes(
                views.Context(store, scheduler, planner, links, self._clock, tuple(render_config(config)), VERSION)
            )
        )
        door.add(priority_routes.routes(priority_routes.Context(store, priorities, self._clock)))
        door.add(
            statistics_routes.routes(
                statistics_routes.Context(
                    store, links, statistics, self._clock, lambda: store.journal.last_durable + 1 - followers.held_from
                )
            )
        )
        door.add(past.routes())
        door.add(
            status.routes(
                status.Context(store, links, scheduler, planner, config, lambda: followers.away_since is None)
            )
        )

        server = rpc.server()
        nodes = NodesService(store, links, dispatcher, opened.blobs.get, self._clock)
        node_pb2_grpc.add_NodesServicer_to_server(nodes, server)
        node_pb2_grpc.add_RelayServicer_to_server(RelayService(door, _Relayed(store.state)), server)
        accounting_pb2_grpc.add_FollowersServicer_to_server(followers, server)
        port = rpc.listen(server, identity, options.listen or f"127.0.0.1:{config.controller_port}")
        await server.start()
        local = LocalSocket(options.socket, _Answer(door))
        await local.open()

        checkpoints = Checkpoints(opened, lambda: followers.held_from)
        service.start(scheduler.run(), "schedule")
        service.start(priorities.run(), "priority")
        service.start(planner.run(), "planner")
        service.start(Deadlines(store, links, dispatcher, self._clock).run(), "deadlines")
        service.start(checkpoints.run(), "checkpoints")
        service.start(past.run(), "history")
        log.info("controller of %s ready: socket %s, port %d", config.cluster_name, options.socket, port)
        service.ready()
        await service.stopping.wait()

        door.closing = True
        await local.close()
        await server.stop(1.0)
        service.cancel_loops()
        if service.failure is None:
            await checkpoints.write()
        await opened.close()
        log.info("controller stopped")


class _Answer:
    """The door, for calls on this host's own socket: root and the controller's user are administrators."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._host = os.uname().nodename
        self._administrators = frozenset({0, os.geteuid()})

    async def __call__(self, uid: int, gid: int, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        caller = Caller(uid=uid, gid=gid, admin=uid in self._administrators, host=self._host)
        answer = await self._door.answer(caller, method, target, body)
        return answer.status, answer.body


class _Relayed:
    """Who a relayed call acts for: the user that the agent's kernel named, never an administrator.

    A compute host speaks for users who have a job on it. Agents on the controller's own host (virtual nodes) are as
    trustworthy as its own socket for ordinary users, and speak for all of them.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def __call__(self, request: node_pb2.CallRequest, context: rpc.Context) -> Caller:
        peer = rpc.peer(context)
        if peer.role != "compute":
            raise Denied(f"a host of role {peer.role} relays no calls")
        if not rpc.is_local(context) and not self._has_job(request.uid, peer.name):
            raise Denied("Access/permission denied", f"user {request.uid} has no job on {peer.name}", slurm_code=2002)
        return Caller(uid=request.uid, gid=request.gid, admin=False, host=request.host)

    def _has_job(self, uid: int, node: str) -> bool:
        state = self._state
        index = state.node_index.get(node)
        return index is not None and any(state.jobs[job].spec.uid == uid for job in state.node_jobs[index])


def _level(config: ClusterConfig) -> str:
    word = config.controller_log_level.lower()
    return {"quiet": "CRITICAL", "fatal": "CRITICAL", "error": "ERROR", "info": "INFO", "verbose": "INFO"}.get(
        word, "DEBUG"
    )


def _accounting_address(config: ClusterConfig) -> str:
    if not config.accounting_storage_type:
        return ""
    return f"{config.accounting_storage_host or 'localhost'}:{config.accounting_storage_port}"
