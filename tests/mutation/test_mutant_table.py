"""The table of mutants is of the mutants that there are, and its seeds say something of them."""

import re
from collections import Counter
from inspect import Parameter, signature

from tests.mutation.anchors import all_anchors, anchor_of
from tests.mutation.edits import Wrap, original_and_mutated
from tests.mutation.injected_bugs import INJECTED_BUGS
from tests.mutation.mutant import injected
from tests.mutation.mutant_hunt import (
    SEEDS,
    TABLE,
    MutationResult,
    known_rows,
    known_seeds,
    row,
    table,
)
from tests.mutation.mutants import MUTANTS, mutant_of
from tests.support.safety_rules import rules_of_safety


def test_the_table_has_its_head_and_one_row_for_each_mutant_in_their_order() -> None:
    text = TABLE.read_text()
    assert table(known_rows(text)[mutant.name] for mutant in MUTANTS) == text


def test_every_row_says_what_its_mutant_says() -> None:
    """But who noticed, which only a hunt can tell."""
    rows = known_rows(TABLE.read_text())
    for mutant in MUTANTS:
        reported = rows[mutant.name].split(" | ")
        expected = row(MutationResult(mutant, "", -1, 0, "", is_tested=True)).split(" | ")
        assert (reported[:4], reported[6:]) == (expected[:4], expected[6:])


def test_the_known_seeds_are_those_of_the_table() -> None:
    rows = known_rows(TABLE.read_text())
    seeds = {name: cells.split(" | ")[5] for name, cells in rows.items()}
    reported = {name: int(seed) for name, seed in seeds.items() if seed.isdigit()}
    assert reported == known_seeds()
    assert all(mutant_of(name).profile for name in reported), SEEDS


def test_no_fault_profile_and_no_test_is_blind_for_its_mutant() -> None:
    assert "no seed of" not in TABLE.read_text()
    assert "**none**" not in TABLE.read_text()


def test_every_rule_of_safety_has_a_mutant() -> None:
    named = {rule for mutant in MUTANTS for rule in re.findall(r"\bS(\d+)\b", mutant.rule)}
    assert rules_of_safety() - named == set()


def test_what_takes_a_methods_place_takes_its_arguments() -> None:
    """Else it breaks whatever calls it, and is noticed for that."""
    for mutant in MUTANTS:
        for each in mutant.patches:
            if not isinstance(each.edit, Wrap):
                continue
            original, mutated = original_and_mutated(anchor_of(each.guard), each.edit)
            parameters = signature(mutated).parameters.values()
            if all(one.kind is not Parameter.VAR_POSITIONAL for one in parameters):
                taken = list(signature(mutated).parameters)
                given = list(signature(original).parameters)
                if given[:1] == ["self"]:
                    taken[0] = "self"
                assert taken == given, (mutant.name, each.guard)


def test_every_mutant_names_anchors_that_are_there_once_and_can_be_planted() -> None:
    for mutant in MUTANTS:
        with injected(mutant):
            pass


def test_every_anchor_has_a_mutant() -> None:
    named = {each.guard for mutant in MUTANTS for each in mutant.patches}
    named |= {each.guard for bug in INJECTED_BUGS for each in bug.patches}
    assert [anchor.place for anchor in all_anchors() if anchor.name not in named] == []


def test_no_two_anchors_have_one_name() -> None:
    names = Counter(anchor.name for anchor in all_anchors())
    assert [name for name, count in names.items() if count > 1] == []


def test_every_rule_of_an_anchor_is_one() -> None:
    """Of safety.md, or a number of an invariant, a liveness rule or a behaviour."""
    unknown = [
        anchor.place
        for anchor in all_anchors()
        for rule in anchor.rule.split(", ")
        if not re.fullmatch(r"[BILS]\d+", rule)
        or (rule[0] == "S" and rule[1:] not in rules_of_safety())
    ]
    assert unknown == []
