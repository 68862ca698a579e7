"""Who a host is: a private certificate authority, and certificates with a role.

`muster up` makes the authority and a certificate for each daemon. A certificate names its role twice: as the DNS
name `<role>.muster` (so TLS itself refuses a server of another role) and in the common name `<role>/<name>`
(so a server knows which client it has). Keys are P-256; files of keys are mode 0600.
"""

from __future__ import annotations

import datetime
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.errors import Denied, InvalidInput

ROLES = ("controller", "compute", "accounting")
_YEARS = 10
_LONGEST_COMMON_NAME = 64
"""X.509's bound."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Identity:
    """Paths of one daemon's certificate, its key, and the authority that both sides trust."""

    certificate: Path
    key: Path
    authority: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Give (key, certificate, authority) as PEM; a missing file is an InvalidInput naming it."""
        try:
            return self.key.read_bytes(), self.certificate.read_bytes(), self.authority.read_bytes()
        except OSError as error:
            raise InvalidInput(
                f"cannot read the certificate file {error.filename}: {error.strerror}", "`muster up` makes them"
            ) from error


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side of an authenticated channel."""

    role: str
    name: str


def identity_at(folder: Path, role: str, name: str) -> Identity:
    """Say where the files of `role/name` lie below a folder of certificates."""
    return Identity(folder / f"{role}-{name}.crt", folder / f"{role}-{name}.key", folder / "ca.crt")


def create_authority(folder: Path) -> None:
    """Make a new authority (ca.crt, ca.key) in `folder`, unless it is there."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / "ca.crt").exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Muster private authority")])
    certificate = (
        _builder(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / "ca.key", key)
    _write(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def issue(folder: Path, role: str, name: str) -> Identity:
    """Give a certificate for `role/name` from the authority in `folder`, making it unless it is there."""
    if role not in ROLES:
        raise InvalidInput(f"unknown role {role!r} for a certificate", f"one of {', '.join(ROLES)}")
    if not _NAME.fullmatch(name) or len(role) + 1 + len(name) > _LONGEST_COMMON_NAME:
        raise InvalidInput(
            f"{name[:80]!r} is no name for a certificate",
            f"letters, digits, dot, dash and underscore, at most {_LONGEST_COMMON_NAME - 1 - len(role)} of them",
        )
    identity = identity_at(folder, role, name)
    if identity.certificate.exists() and identity.key.exists():
        return identity
    authority, authority_key = _read_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{role}/{name}")])
    certificate = (
        _builder(subject, authority.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(server_name(role))]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write_key(identity.key, key)
    _write(identity.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return identity


def server_name(role: str) -> str:
    """Give the DNS name that a server of this role must prove."""
    return f"{role}.muster"


def peer_of(common_name: str) -> Peer:
    """Read the common name of a verified certificate; Denied when it is none of ours."""
    role, slash, name = common_name.partition("/")
    if not slash or role not in ROLES or not name:
        raise Denied(f"the certificate {common_name!r} names no role of this cluster")
    return Peer(role, name)


def _read_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    except OSError as error:
        raise InvalidInput(
            f"cannot read the authority's file {error.filename}: {error.strerror}",
            "certificates are made where the authority was made, and ca.key stays there",
        ) from error
    except ValueError as error:
        raise InvalidInput(f"the authority's files in {folder} cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput(f"{folder / 'ca.key'} holds no P-256 key")
    return certificate, key


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A day back: hosts whose clocks differ a little can talk at once.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(path, pem, 0o600)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a whole file or none, never readable by others even for a moment."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # what a crash left may have another mode
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
