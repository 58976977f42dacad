"""Decide a PLAIN exchange (RFC 4616): one message with user and password.

Names and passwords are compared as UTF-8, without SASLprep, as Kafka does.
"""

from tidemark_broker.security.exchange import (
    MAX_USER_BYTES,
    AskPassword,
    Authenticated,
    AuthenticationFailed,
    Found,
    Review,
    Step,
)

MECHANISM = "PLAIN"
MAX_PASSWORD_BYTES = 4096
WRONG_CREDENTIALS = "wrong user or password"  # of each mechanism: it tells no users apart


class PlainExchange:
    def on_client(self, data: bytes) -> Step:
        parts = data.split(b"\0")
        if len(parts) != 3:
            return AuthenticationFailed("PLAIN: expected authorization identity, user and password")
        authorization_id, user, password = parts
        if not 0 < len(user) <= MAX_USER_BYTES or not 0 < len(password) <= MAX_PASSWORD_BYTES:
            return AuthenticationFailed(
                f"PLAIN: expected a user of 1 to {MAX_USER_BYTES} bytes and a password of 1 to"
                f" {MAX_PASSWORD_BYTES}"
            )
        if authorization_id not in (b"", user):
            return AuthenticationFailed(
                "PLAIN: the authorization identity differs from the user: send none"
            )
        try:
            return AskPassword(user.decode(), password.decode())
        except UnicodeDecodeError:
            return AuthenticationFailed("PLAIN: expected UTF-8")

    def on_found(self, found: Found) -> Step:
        assert isinstance(found, Review)
        if found.identity is None:
            return AuthenticationFailed(WRONG_CREDENTIALS)
        return Authenticated(found.identity)
