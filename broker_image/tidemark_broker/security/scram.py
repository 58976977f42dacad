"""Decide a SCRAM exchange (RFC 5802, RFC 7677) with SHA-256 or SHA-512, as a server.

The exchange of an unknown user runs as that of a known one, with keys that no proof fits, and fails
at the proof. There is no channel binding: a client that asks for it (`p=`) is rejected; one that
supports it and found that this server does not (`y`) is not. The nonce of the last message is the
whole one, as in Kafka since CVE-2024-56128; librdkafka before 2.6.1 repeats its own part. Names are
compared as UTF-8, without SASLprep, as Kafka does.
"""

import base64
import binascii
import hashlib
import hmac
import re

from tidemark_broker.security.exchange import (
    MAX_USER_BYTES,
    AskScramCredential,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Found,
    Identity,
    ScramCredential,
    Step,
)
from tidemark_broker.security.sasl_plain import WRONG_CREDENTIALS

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MAX_MESSAGE_BYTES = 4096
# gs2-cbind-flag, authorization identity; then user, nonce and extensions.
_CLIENT_FIRST = re.compile(
    rb"(?P<header>(?P<flag>n|y),(?:a=(?P<authorization>[^,\x00]+))?,)"
    rb"(?P<bare>n=(?P<user>[^,\x00]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,\x00]+)*)"
)
_CLIENT_FINAL = re.compile(
    rb"(?P<bare>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rb"(?:,[A-Za-oq-z]=[^,\x00]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramExchange:
    def __init__(self, mechanism: str, server_nonce: str) -> None:
        """Create an exchange; `server_nonce` is random and printable, without a comma."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._server_nonce = server_nonce.encode()
        self._header = self._bare_first = self._server_first = self._nonce = b""
        self._credential: ScramCredential | None = None

    def on_client(self, data: bytes) -> Step:
        if len(data) > MAX_MESSAGE_BYTES:
            return self._malformed(f"at most {MAX_MESSAGE_BYTES} bytes")
        return self._on_first(data) if self._credential is None else self._on_final(data)

    def on_found(self, found: Found) -> Step:
        assert isinstance(found, ScramCredential)
        self._credential = found
        salt = base64.b64encode(found.salt)
        self._server_first = b"r=%b,s=%b,i=%d" % (self._nonce, salt, found.iterations)
        return Challenge(self._server_first)

    def _on_first(self, data: bytes) -> Step:
        if data.startswith(b"p="):
            return self._malformed("no channel binding")
        message = _CLIENT_FIRST.fullmatch(data)
        if message is None:
            return self._malformed("n,,n=user,r=nonce")
        user = _name(message["user"])
        if user is None or len(message["user"]) > MAX_USER_BYTES:
            return self._malformed(f"a user of at most {MAX_USER_BYTES} bytes in UTF-8")
        if message["authorization"] not in (None, message["user"]):
            return self._malformed("no authorization identity that differs from the user")
        self._header, self._bare_first = message["header"], message["bare"]
        self._nonce = message["nonce"] + self._server_nonce
        return AskScramCredential(user, self._mechanism)

    def _on_final(self, data: bytes) -> Step:
        credential = self._credential
        assert credential is not None
        message = _CLIENT_FINAL.fullmatch(data)
        if message is None:
            return self._malformed("c=header,r=nonce,p=proof")
        header, proof = _decoded(message["header"]), _decoded(message["proof"])
        if header != self._header or not hmac.compare_digest(message["nonce"], self._nonce):
            return self._malformed("the header and the nonce of this exchange")
        signed = b",".join((self._bare_first, self._server_first, message["bare"]))
        client_signature = self._hmac(credential.stored_key, signed)
        client_key = _xor(client_signature, proof or b"")
        proves = hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), credential.stored_key
        )
        if not proves or credential.principal is None:
            return AuthenticationFailed(WRONG_CREDENTIALS)
        signature = base64.b64encode(self._hmac(credential.server_key, signed))
        return Authenticated(Identity(credential.principal), b"v=" + signature)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _malformed(self, expected: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"{self._mechanism}: expected {expected}")


def _name(escaped: bytes) -> str | None:
    """Return a user's name without its escapes (RFC 5802 5.1), or None for a malformed one."""
    if re.search(rb"=(?!2C|3D)", escaped):
        return None
    try:
        return escaped.decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        return None


def _decoded(text: bytes) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _xor(first: bytes, second: bytes) -> bytes:
    """Return b"" for parts of different lengths, which fits no key."""
    if len(first) != len(second):
        return b""
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
