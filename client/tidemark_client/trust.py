"""Choose whom to trust on connections with TLS.

TIDEMARK_CA_FILE (`--ca-file`) names a file of certificate authorities (PEM), which are trusted
instead of those of the system. On loopback the authorities of `tidemark dev --tls` are trusted
without it. A file is read again when it changes, as authorities are replaced.

`ssl` is imported with the first use, because its import takes longer than many a command.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidemark_protocol.local_profile import read_profile, read_profiles

from tidemark_client.errors import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    import ssl

CA_FILE_VARIABLE = "TIDEMARK_CA_FILE"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def tls_context(url: str) -> "ssl.SSLContext | None":
    """Return the context of requests to this URL; None for one without TLS.

    Raises CommandFailed if the file of authorities cannot be used.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # the request itself says what is wrong with it
        return None
    return context_for(parts.hostname or "") if parts.scheme == "https" else None


def context_for(host: str) -> "ssl.SSLContext":
    """Return the context of connections to this host.

    Raises CommandFailed if the file of authorities cannot be used.
    """
    named = os.environ.get(CA_FILE_VARIABLE, "")
    if named:
        return _of_file(named)
    files = [profile.ca_file for profile in read_profiles()] if host in LOOPBACK else []
    present = tuple((str(path), path.stat().st_mtime_ns) for path in files if path.is_file())
    return _context(present)


def is_local_tls(port: int) -> bool:
    """Return whether a `tidemark dev --tls` has its controller at this port of loopback."""
    return read_profile(port) is not None


def _of_file(named: str) -> "ssl.SSLContext":
    import ssl

    try:
        return _context(((named, Path(named).stat().st_mtime_ns),))
    except (OSError, ssl.SSLError) as error:
        raise CommandFailed(
            f"File {named} cannot be used: {error}",
            expected="certificate authorities (PEM)",
            found=str(error),
            to_do=f"check --ca-file, or {CA_FILE_VARIABLE}",
            exit_code=EXIT_USAGE,
        ) from error


@lru_cache(maxsize=8)
def _context(files: tuple[tuple[str, int], ...]) -> "ssl.SSLContext":
    """Return a context that trusts these files (with their times), or else the system's."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # An authority of a pool may be below others, which need not be trusted (0187).
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not files:
        context.load_default_certs()
    for path, _ in files:
        context.load_verify_locations(path)
    return context
