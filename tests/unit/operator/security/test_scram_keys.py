"""Keys of SCRAM users: the vector of RFC 7677, and a salt for every name."""

import base64

import pytest
from tidemark_operator.security import scram_keys as module
from tidemark_operator.security.scram_keys import scram_keys, scram_salt


def test_the_vector_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    monkeypatch.setattr(module, "scram_salt", lambda *_: salt)
    monkeypatch.setattr(module, "ITERATIONS", 4096)
    keys = scram_keys("SCRAM-SHA-256", "user", "pencil", b"")
    # As PostgreSQL stores this password, salt and count.
    assert base64.b64encode(keys.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(keys.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_each_name_has_a_salt_of_its_own_that_stays() -> None:
    salts = {
        scram_salt(mechanism, user, key)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for user in ("a", "b")
        for key in (b"k", b"l")
    }
    assert len(salts) == 8
    assert scram_salt("SCRAM-SHA-256", "a", b"k") in salts
