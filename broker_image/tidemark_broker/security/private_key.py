"""Make the broker's private key, and sign with it. Only a broker with TLS imports this."""

import os
import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

TEMPORARY_LIFE = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=5)


class PrivateKey:
    """An ECDSA key on P-256, in the memory of this process only."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())

    def request_pem(self, name: str) -> str:
        """Return a certificate signing request."""
        builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(name))
        request = builder.sign(self._key, hashes.SHA256())
        return request.public_bytes(serialization.Encoding.PEM).decode()

    def self_signed_pem(self, name: str) -> str:
        """Return a certificate that nothing trusts."""
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_common_name(name))
            .issuer_name(_common_name(name))
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + TEMPORARY_LIFE)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def end_of(self, certificate_pem: str) -> float:
        """Return when a certificate for this key ends.

        Raises ValueError for one of another key.
        """
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        if certificate.public_key() != self._key.public_key():
            raise ValueError("the certificate is not for this broker's key")
        return certificate.not_valid_after_utc.timestamp()

    def load(self, context: ssl.SSLContext, certificate_pem: str) -> None:
        """Load a certificate and this key into a context.

        OpenSSL reads files only: this one is in memory.
        """
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        with os.fdopen(os.memfd_create("tls", os.MFD_CLOEXEC), "wb") as file:
            file.write(certificate_pem.encode() + pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
