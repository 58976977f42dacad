"""Make the TLS context of the controller API."""

import os
import ssl

from tidemark_operator.security.certificate_authority import CertificateWithKey


def load_certificate(context: ssl.SSLContext, found: CertificateWithKey) -> None:
    """Use this certificate in handshakes from now on; open connections are not affected.

    OpenSSL reads files only: this one is in memory, so that no key is on a disk.
    """
    with os.fdopen(os.memfd_create("tls", os.MFD_CLOEXEC), "w") as file:
        file.write(found.certificate.pem + found.key_pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def controller_context() -> ssl.SSLContext:
    """Return a context without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
