"""docs/clients.md is what the tests of the clients say, and they are there."""

from tests.clients.capabilities import PAGE, missing_tests, page


def test_every_cell_has_its_test() -> None:
    assert missing_tests() == []


def test_the_page_is_as_it_is_made() -> None:
    assert PAGE.read_text() == page(), "run: .venv/bin/python -m tests.clients.capabilities"
