"""gRPC between daemons: mutual TLS, deadlines, and errors that cross the wire as what they are.

An error of the house travels as a status with its code, sentence, hint and number in the trailing metadata, and comes
out on the other side as the same class. This is the only module that knows both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import grpc.aio

from muster import errors
from muster.auth import Identity, Peer, peer_of, server_name

MAX_MESSAGE_BYTES = 64 << 20
"""Above max_script_size and an environment; gRPC's own default of 4 MiB is below."""

_MOST_TEXT_BYTES = 2_000
"""A sentence or hint beyond this is cut: a peer drops a call whose metadata is over 8 KiB, and with it the error."""

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Notice a dead peer: agents and controller live long, idle streams included.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
    # A lost peer is dialled again soon: a restarted controller must not wait for a two-minute back-off.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # This one bounds the time for connecting, too: a TLS handshake on a busy host takes its time.
    ("grpc.min_reconnect_backoff_ms", 20_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Several virtual nodes live on one host: each channel has its own connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]

_STATUS = {
    "INVALID_INPUT": grpc.StatusCode.INVALID_ARGUMENT,
    "CONFIG": grpc.StatusCode.INVALID_ARGUMENT,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "REFUSED": grpc.StatusCode.FAILED_PRECONDITION,
    "DENIED": grpc.StatusCode.PERMISSION_DENIED,
    "TOO_LARGE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "DAMAGED": grpc.StatusCode.DATA_LOSS,
}

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Reply = TypeVar("Reply")


def server() -> grpc.aio.Server:
    """Give a server with the house's limits; add services, then `listen`."""
    return grpc.aio.server(options=_OPTIONS)


def listen(server: grpc.aio.Server, identity: Identity, address: str) -> int:
    """Bind `host:port` (port 0: any) with mutual TLS and give the port; Unavailable when it cannot be bound."""
    key, certificate, authority = identity.read()
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=True
    )
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise errors.Unavailable(f"cannot listen on {address}: the port is in use or not ours") from error
    if port == 0:
        raise errors.Unavailable(f"cannot listen on {address}: the port is in use or not ours")
    return port


def dial(identity: Identity, address: str, role: str) -> grpc.aio.Channel:
    """Open a channel to a daemon that must prove `role`; connects when first used, and again after losses."""
    key, certificate, authority = identity.read()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    options = [*_OPTIONS, ("grpc.ssl_target_name_override", server_name(role))]
    return grpc.aio.secure_channel(address, credentials, options=options)


def peer(context: Context) -> Peer:
    """Say who is on the other side of a call, by its verified certificate; Denied when it has none of ours."""
    names = list(context.auth_context().get("x509_common_name") or ())
    if not names:
        raise errors.Denied("the call came without a certificate")
    return peer_of(names[0].decode("utf-8", "replace"))


def is_local(context: Context) -> bool:
    """Tell whether a call came over this host's loopback."""
    address: str = context.peer()
    return address.startswith(("ipv4:127.", "ipv6:%5B::1%5D", "ipv6:[::1]", "unix:"))


async def answer_error(context: Context, error: errors.MusterError) -> NoReturn:
    """End a call with an error of the house; raises what gRPC needs to see."""
    sentence, hint = _bounded(error.sentence), _bounded(error.hint)
    await context.abort(
        _STATUS.get(error.code, grpc.StatusCode.INTERNAL),
        # For tools that know nothing of our metadata; it counts against the same bound, percent-encoded.
        sentence[:200].decode("utf-8", "ignore"),
        trailing_metadata=(
            ("muster-code", error.code),
            ("muster-sentence-bin", sentence),
            ("muster-hint-bin", hint),
            ("muster-number", str(error.slurm_code)),
        ),
    )
    raise AssertionError("abort raises")


def from_status(error: grpc.aio.AioRpcError) -> errors.MusterError:
    """Turn a failed call's status back into an error of the house; a lost or late peer is Unavailable."""
    metadata: dict[str, str | bytes] = dict(error.trailing_metadata() or ())
    code = metadata.get("muster-code")
    if isinstance(code, str):
        sentence, hint = metadata.get("muster-sentence-bin", b""), metadata.get("muster-hint-bin", b"")
        number = _text(metadata.get("muster-number", ""))
        return errors.from_wire(code, _text(sentence), _text(hint), int(number) if number.isdecimal() else 0)
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return errors.Unavailable(error.details() or error.code().name.lower())
    return errors.MusterError(error.details() or error.code().name.lower())


async def call(attempt: Callable[[], Awaitable[Reply]]) -> Reply:
    """Await one call and raise its failure as an error of the house."""
    try:
        return await attempt()
    except grpc.aio.AioRpcError as error:
        raise from_status(error) from error


def _bounded(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return data if len(data) <= _MOST_TEXT_BYTES else data[:_MOST_TEXT_BYTES] + b"..."


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
