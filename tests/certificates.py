"""An authority of our own, and what it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificates(folder: Path, name: str, address: str) -> tuple[Path, Path]:
    """Files: the authority's certificate, and the key and certificate of a server of this name and address."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _named("An authority of tests")
    # As RFC 5280 has it: from Python 3.13 on nothing less is accepted.
    own = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    authority = (
        _builder(issuer, issuer, authority_key)
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .add_extension(own, critical=False)
        .add_extension(signs, critical=True)
    )
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address(address))])
    server = (
        _builder(_named(name), issuer, key)
        .add_extension(alternatives, critical=False)
        .add_extension(signed_by, critical=False)
    )
    paths = folder / "authority.pem", folder / "server.pem"
    pem = serialization.Encoding.PEM
    paths[0].write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths[1].write_bytes(private + server.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    return paths


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )
