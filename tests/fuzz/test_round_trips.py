"""Seconds of what `python -m tests.fuzz` does for an hour."""

from collections.abc import Iterator

import pytest

from tests.fuzz.java_peer import JavaPeer
from tests.fuzz.round_trips import disagreements


@pytest.fixture(scope="module")
def java() -> Iterator[JavaPeer]:
    with JavaPeer() as peer:
        yield peer


def test_three_implementations_write_what_they_read(java: JavaPeer) -> None:
    assert list(disagreements(java, seed=1, count=4))[:5] == []
