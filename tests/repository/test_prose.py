"""Docstrings of functions are sentences in the imperative."""

from pathlib import Path

from tests.repository.house import ROOT, house_of_one_module, load_house_numbers


def test_no_function_of_the_product_opens_its_docstring_with_a_fragment() -> None:
    total, fragments = load_house_numbers().House(ROOT).docstrings()
    assert total > 1000
    assert fragments == []


def test_a_fragment_is_found(tmp_path: Path) -> None:
    source = 'def size() -> int:\n    """Of the log, in bytes."""\n    return 0\n'
    total, fragments = house_of_one_module(tmp_path, source).docstrings()
    assert (total, fragments) == (1, ["client/module.py:1 Of the log, in bytes."])
