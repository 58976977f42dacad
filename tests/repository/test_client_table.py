"""docs/user/clients.md is what the tests of the clients say, and they are there."""

from tests.compatibility.capabilities import CAPABILITIES, LACKING, PAGE, page, the_test
from tests.compatibility.client_programs import CLIENTS


def test_every_cell_has_its_test() -> None:
    for capability in CAPABILITIES:
        lacking = {client for title, client in LACKING if title == capability.title}
        assert set(capability.tested_clients()) == set(CLIENTS) - lacking
    for test in LACKING.values():
        assert callable(the_test(test))


def test_the_page_is_as_it_is_made() -> None:
    assert PAGE.read_text() == page(), "run: .venv/bin/python -m tests.compatibility.capabilities"
