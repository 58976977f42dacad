"""How experiments reach pools with TLS and authentication."""

from pathlib import Path

import pytest
from tidemark_chaos.environments.in_cluster import bootstrap_url
from tidemark_chaos.environments.running_cluster import controller_url, use_admin_token
from tidemark_client.credentials import TOKEN_FILE
from tidemark_client.trust import CA_FILE_VARIABLE
from tidemark_protocol.local_profile import LocalProfile, write_profile


def test_pool_with_authorities_to_trust_is_reached_by_tls(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    environment = {CA_FILE_VARIABLE: str(ca_file)}
    assert bootstrap_url("main", environment) == "http://main-bootstrap:8080"
    assert bootstrap_url("main", {}) == "http://main-bootstrap:8080"
    ca_file.write_text("x")
    assert bootstrap_url("main", environment) == "https://main-bootstrap:8080"


def test_controller_with_tls_is_known_by_its_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert controller_url("127.0.0.1:17070") == "http://127.0.0.1:17070"
    write_profile(17070, LocalProfile("https://127.0.0.1:17070", tmp_path / "ca.crt"))
    assert controller_url("127.0.0.1:17070") == "https://127.0.0.1:17070"


def test_workload_is_admin_unless_another_token_is_named(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    use_admin_token(tmp_path, environment)
    assert environment == {}
    token_file = tmp_path / "tokens" / "admin"
    token_file.parent.mkdir()
    token_file.write_text("x")
    use_admin_token(tmp_path, environment)
    assert environment == {TOKEN_FILE: str(token_file)}
    environment[TOKEN_FILE] = "other"
    use_admin_token(tmp_path, environment)
    assert environment == {TOKEN_FILE: "other"}
