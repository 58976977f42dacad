"""Derive what verifies a SCRAM client from its password (RFC 5802), with a salt that it always has.

The salt is a MAC of the name by a key of the pool, for unknown users as for known ones, so that a
challenge does not tell which users there are.
"""

import hashlib
import hmac
from dataclasses import dataclass

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS = 8192  # Kafka's least is 4096
SALT_BYTES = 24


@dataclass(frozen=True, slots=True)
class ScramKeys:
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def scram_keys(mechanism: str, user: str, password: str, salt_key: bytes) -> ScramKeys:
    """Return the keys of a user; takes milliseconds."""
    name = HASHES[mechanism]
    salt = scram_salt(mechanism, user, salt_key)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramKeys(
        salt,
        ITERATIONS,
        hashlib.new(name, client_key).digest(),
        hmac.digest(salted, b"Server Key", name),
    )


def scram_salt(mechanism: str, user: str, salt_key: bytes) -> bytes:
    return hmac.digest(salt_key, f"{mechanism}\0{user}".encode(), "sha256")[:SALT_BYTES]
