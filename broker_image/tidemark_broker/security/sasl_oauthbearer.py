"""Decide an OAUTHBEARER exchange (RFC 7628, KIP-255): one message with the token.

The failure of a token is told in two steps: its JSON document is sent as a challenge, the client
answers with a single byte 0x01, and only then the exchange fails.
"""

import json
import re

from tidemark_protocol.access_messages import MAX_TOKEN_BYTES

from tidemark_broker.security.exchange import (
    AskToken,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Found,
    Review,
    Step,
)

MECHANISM = "OAUTHBEARER"
SEPARATOR = b"\x01"
MAX_MESSAGE_BYTES = MAX_TOKEN_BYTES + 8 * 1024  # with an authorization identity and extensions
_TOKEN = re.compile(rb"[A-Za-z0-9\-._~+/]+=*")


class OauthBearerExchange:
    def __init__(self) -> None:
        self._authorization_id = ""
        self._rejection = ""

    def on_client(self, data: bytes) -> Step:
        if self._rejection:
            return AuthenticationFailed(self._rejection)
        if len(data) > MAX_MESSAGE_BYTES:
            return AuthenticationFailed(
                f"OAUTHBEARER: expected at most {MAX_MESSAGE_BYTES} bytes, found {len(data)}"
            )
        header, _, rest = data.partition(SEPARATOR)
        authorization_id = _authorization_id(header)
        if authorization_id is None:
            return _malformed("a header n,, or n,a=user,")
        self._authorization_id = authorization_id
        if rest != SEPARATOR and not rest.endswith(SEPARATOR + SEPARATOR):
            return _malformed("two bytes 0x01 at the end")
        scheme, _, token = _value_of_auth(rest).partition(b" ")
        token = token.strip(b" ")
        if scheme.lower() != b"bearer" or _TOKEN.fullmatch(token) is None:
            return _malformed("auth=Bearer and a token")
        return AskToken(token.decode("ascii"))

    def on_found(self, found: Found) -> Step:
        assert isinstance(found, Review)
        identity = found.identity
        if identity is None:
            return self._reject(f"the token is not valid: {found.reason or 'no reason is known'}")
        if self._authorization_id not in ("", identity.principal.name):
            return self._reject(
                "the authorization identity differs from the token's user: send none"
            )
        return Authenticated(identity)

    def _reject(self, reason: str) -> Step:
        self._rejection = reason
        document = {"status": "invalid_token", "error_description": reason}
        return Challenge(json.dumps(document).encode(), reason)


def _authorization_id(header: bytes) -> str | None:
    """Return the authorization identity of a GS2 header, or None for a malformed header."""
    parts = header.split(b",")
    if len(parts) != 3 or parts[0] not in (b"n", b"y") or parts[2]:
        return None  # also channel binding (p=), which there is none of
    if not parts[1]:
        return ""
    if not parts[1].startswith(b"a="):
        return None
    try:
        return parts[1][2:].decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        return None


def _value_of_auth(pairs: bytes) -> bytes:
    """Return the value of `auth`, or b"" if it is not there exactly once."""
    found = [pair[5:] for pair in pairs.split(SEPARATOR) if pair.startswith(b"auth=")]
    return found[0] if len(found) == 1 else b""


def _malformed(expected: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"OAUTHBEARER: expected {expected}")
