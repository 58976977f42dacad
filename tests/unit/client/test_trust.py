"""Whom commands trust."""

import ssl
from pathlib import Path

import pytest
from tidemark_client.errors import CommandFailed
from tidemark_client.trust import context_for, is_local_tls, tls_context
from tidemark_protocol.local_profile import LocalProfile, remove_profile, write_profile

from tests.support.certificates import new_authority


@pytest.fixture(autouse=True)
def no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TIDEMARK_CA_FILE", raising=False)


def subjects(context: ssl.SSLContext) -> int:
    return context.cert_store_stats()["x509_ca"]


def test_plain_urls_need_no_context() -> None:
    assert tls_context("http://127.0.0.1:1") is None
    assert tls_context("http://[") is None


def test_named_file_is_trusted_alone_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca_file = tmp_path / "ca.crt"
    monkeypatch.setenv("TIDEMARK_CA_FILE", str(ca_file))
    with pytest.raises(CommandFailed, match=r"ca\.crt cannot be used"):
        context_for("example.org")
    ca_file.write_text("nonsense")
    with pytest.raises(CommandFailed, match=r"ca\.crt cannot be used"):
        context_for("example.org")
    ca_file.write_text(new_authority().certificate_pem)
    assert subjects(context_for("example.org")) == 1
    ca_file.write_text(new_authority().certificate_pem + new_authority().certificate_pem)
    assert subjects(context_for("example.org")) == 2


def test_local_authorities_are_trusted_on_loopback_only(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text(new_authority().certificate_pem)
    write_profile(17070, LocalProfile("https://127.0.0.1:17070", ca_file))
    assert is_local_tls(17070) and not is_local_tls(17071)
    assert subjects(context_for("127.0.0.1")) == 1
    assert context_for("example.org") is not context_for("127.0.0.1")
    remove_profile(17070)
    remove_profile(17070)
    assert not is_local_tls(17070)
