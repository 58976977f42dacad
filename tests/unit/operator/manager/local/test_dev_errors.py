"""What `tidemark dev` cannot do is told in one plain sentence."""

from pathlib import Path

import pytest
from tidemark_operator.manager.local.apply import ManifestRejected
from tidemark_operator.manager.local.main import _plain, _text
from tidemark_operator.store.object_store import StoreError


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (OSError(28, "No space left on device", "/data/logs"), "/data/logs: No space left on"),
        (OSError("port 1 of 127.0.0.1 is taken"), "port 1 of 127.0.0.1 is taken"),
        (StoreError("SQLite store: disk is full"), "SQLite store: disk is full"),
    ],
)
def test_errors_are_told_without_numbers(error: OSError | StoreError, reported: str) -> None:
    assert _plain(error).startswith(reported)


def test_manifest_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestRejected, match="expected UTF-8"):
        _text(tmp_path / "m.yaml")
