"""Make the tokens of local mode, where a secret in the data directory stands for Kubernetes.

A broker's token names it, and has an HMAC by the secret, so that a broker cannot make another
one's. The person who may read the secret has a token too; commands make it of the file.
"""

import hashlib
import hmac

from tidemark_protocol.ids import BrokerId

SECRET_FILE = "controller.secret"  # in the data directory, mode 0600
PERSON = "local:person"
_BROKER = "local:broker:"


def broker_token(secret: bytes, pool: str, broker_id: BrokerId) -> str:
    return _signed(secret, f"{_BROKER}{pool}:{broker_id}")


def person_token(secret: bytes) -> str:
    return _signed(secret, PERSON)


def verified_subject(secret: bytes, token: str) -> str | None:
    """Return whom a token names, or None unless it was made by this secret."""
    subject, _, _ = token.rpartition(".")
    is_valid = hmac.compare_digest(_signed(secret, subject).encode(), token.encode())
    return subject if is_valid else None


def broker_of_subject(subject: str) -> tuple[str, BrokerId] | None:
    """Return pool and broker id, or None for the subject of a person."""
    if not subject.startswith(_BROKER):
        return None
    pool, _, broker_id = subject.removeprefix(_BROKER).rpartition(":")
    return pool, BrokerId(int(broker_id))


def _signed(secret: bytes, subject: str) -> str:
    mac = hmac.new(secret, subject.encode(), hashlib.sha256).hexdigest()
    return f"{subject}.{mac}"
