"""The table of mutants is of the mutants that there are, and its seeds say something of them."""

import re
from inspect import Parameter, signature

from tests.simulator.mutant import original_and_weaker
from tests.simulator.mutant_hunt import SEEDS, TABLE, Hunted, known_rows, known_seeds, row, table
from tests.simulator.mutants import MUTANTS, mutant_of
from tests.transcripts.elsewhere import rules_of_safety


def test_the_table_has_its_head_and_one_row_for_each_mutant_in_their_order() -> None:
    text = TABLE.read_text()
    assert table(known_rows(text)[mutant.name] for mutant in MUTANTS) == text


def test_every_row_says_what_its_mutant_says() -> None:
    """But who noticed, which only a hunt can tell."""
    rows = known_rows(TABLE.read_text())
    for mutant in MUTANTS:
        told = rows[mutant.name].split(" | ")
        expected = row(Hunted(mutant, "", -1, 0, "", is_tested=True)).split(" | ")
        assert (told[:4], told[6:]) == (expected[:4], expected[6:])


def test_the_known_seeds_are_those_of_the_table() -> None:
    rows = known_rows(TABLE.read_text())
    seeds = {name: cells.split(" | ")[5] for name, cells in rows.items()}
    told = {name: int(seed) for name, seed in seeds.items() if seed.isdigit()}
    assert told == known_seeds()
    assert all(mutant_of(name).weather for name in told), SEEDS


def test_no_weather_and_no_test_is_blind_for_its_mutant() -> None:
    assert "no seed of" not in TABLE.read_text()
    assert "**none**" not in TABLE.read_text()


def test_every_rule_of_safety_has_a_mutant() -> None:
    named = {rule for mutant in MUTANTS for rule in re.findall(r"\bS(\d+)\b", mutant.rule)}
    assert rules_of_safety() - named == set()


def test_what_takes_a_methods_place_takes_its_arguments() -> None:
    """Else it breaks whatever calls it, and is noticed for that."""
    for mutant in MUTANTS:
        for each in mutant.patches:
            original, weaker = original_and_weaker(each)
            if isinstance(original, property):
                assert isinstance(weaker, property), (mutant.name, each.target)
                continue
            parameters = signature(weaker).parameters.values()
            if all(one.kind is not Parameter.VAR_POSITIONAL for one in parameters):
                taken = list(signature(weaker).parameters)
                given = list(signature(original).parameters)
                if given[:1] == ["self"]:
                    taken[0] = "self"
                assert taken == given, (mutant.name, each.target)
