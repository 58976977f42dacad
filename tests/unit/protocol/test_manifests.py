"""Manifests are read as kubectl reads them, and applied by its three-way merge."""

import json
from typing import Any

import pytest
from tidemark_protocol.manifests import (
    LAST_APPLIED,
    MAX_DEPTH,
    MAX_NODES,
    UnreadableManifest,
    last_applied,
    read_objects,
    with_manifest,
)


def a_topic(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"kind": "Topic", "metadata": {"name": "orders", **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("", []),
        ("---\n---\nkind: A\n---\nkind: B\n", [{"kind": "A"}, {"kind": "B"}]),
        ('{"kind": "A"}', [{"kind": "A"}]),
        (
            "apiVersion: v1\nkind: List\nitems: [{kind: A}, {kind: B}]",
            [{"kind": "A"}, {"kind": "B"}],
        ),
        ("apiVersion: v1\nkind: List\n", []),
        ("apiVersion: v2\nkind: List\n", [{"apiVersion": "v2", "kind": "List"}]),
    ],
)
def test_documents_and_items_of_lists_are_objects(text: str, objects: list[Any]) -> None:
    assert read_objects(text) == objects


def test_values_and_keys_are_those_of_json() -> None:
    assert read_objects("day: 2026-01-31\n1: a\ntrue: b") == [
        {"day": "2026-01-31", "1": "a", "true": "b"}
    ]


def test_merge_key_is_replaced_by_its_fields() -> None:
    text = "x: &base {a: 1, b: 1}\ny: {<<: *base, b: 2}"
    assert read_objects(text)[0]["y"] == {"a": 1, "b": 2}
    assert read_objects("{<<: {a: 1}, <<: {b: 2}}") == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb: 2\na: 3", 'line 3: key "a" already set in map'),
        ("a: 1\n? [x]\n: 2", "line 2: expected a key, found a list or an object"),
        ("a: [", "expected YAML, found: "),
        ("!!python/object:os.system x", "expected YAML, found: "),
        ("a: .nan", "expected a finite number, found nan"),
        ("a: -.inf", "expected a finite number, found -inf"),
        ("a: !!binary aGk=", "expected a JSON value, found b'hi'"),
        ("&a [*a]", f"expected at most {MAX_NODES} values in {MAX_DEPTH} levels, found more"),
        ("[" * 5000, "expected YAML, found: "),
    ],
)
def test_unreadable_text_is_rejected_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UnreadableManifest) as error:
        read_objects(text)
    assert str(error.value).startswith(sentence)


def test_short_text_of_many_values_is_rejected() -> None:
    """Each line has ten aliases of the line before: a million values in six lines."""
    lines = ["- &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 6)]
    with pytest.raises(UnreadableManifest, match=f"at most {MAX_NODES} values"):
        read_objects("\n".join(lines))


@pytest.mark.parametrize(("levels", "is_read"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_depth_of_a_document_is_limited(levels: int, is_read: bool) -> None:
    text = "[" * levels + "1" + "]" * levels
    if is_read:
        assert len(read_objects(text)) == 1
    else:
        with pytest.raises(UnreadableManifest):
            read_objects(text)


def test_new_object_records_what_was_applied() -> None:
    manifest = a_topic({"partitions": 3}, annotations={"team": "a"}) | {"status": {"old": 1}}
    created = with_manifest(None, manifest)
    assert created["spec"] == {"partitions": 3}
    assert created["metadata"]["annotations"]["team"] == "a"
    assert "status" not in created
    plain = a_topic({"partitions": 3}, annotations={"team": "a"})
    assert last_applied(created) == plain
    assert created["metadata"]["annotations"][LAST_APPLIED] == (
        '{"kind":"Topic","metadata":{"annotations":{"team":"a"},"name":"orders"},'
        '"spec":{"partitions":3}}'
    )


def test_fields_that_no_manifest_set_stay() -> None:
    stored = with_manifest(None, a_topic({"partitions": 3}, labels={"mine": "1"}))
    stored["spec"]["placement"] = [[1]]  # of `tidemark move`
    stored["metadata"] |= {"resourceVersion": "9", "labels": {"mine": "1", "other": "2"}}
    stored["status"] = {"ready": True}
    applied = with_manifest(stored, a_topic({"partitions": 4}))
    assert applied["spec"] == {"partitions": 4, "placement": [[1]]}
    assert applied["metadata"]["labels"] == {"other": "2"}
    assert applied["metadata"]["resourceVersion"] == "9"
    assert applied["status"] == {"ready": True}


def test_fields_that_the_manifest_no_longer_sets_are_removed_at_each_level() -> None:
    stored = with_manifest(None, a_topic({"config": {"a": "1", "b": "2"}, "flush": "Always"}))
    stored["spec"]["config"]["c"] = "3"
    applied = with_manifest(stored, a_topic({"config": {"b": "5"}}))
    assert applied["spec"] == {"config": {"b": "5", "c": "3"}}
    assert "labels" not in applied["metadata"]


def test_applied_again_a_manifest_changes_nothing() -> None:
    manifest = a_topic({"config": {"a": "1"}}, annotations={"team": "a"}, labels={"l": "1"})
    once = with_manifest(None, manifest)
    assert with_manifest(once, manifest) == once
    assert with_manifest(once, json.loads(json.dumps(once))) == once  # as `kubectl get` prints it


@pytest.mark.parametrize("text", [None, "", "{", "[]", "null", "3"])
def test_unreadable_record_of_the_last_manifest_counts_as_none(text: str | None) -> None:
    annotations = {} if text is None else {LAST_APPLIED: text}
    stored = a_topic({"partitions": 3, "old": 1}, annotations=annotations)
    assert last_applied(stored) == {}
    assert with_manifest(stored, a_topic({"partitions": 4}))["spec"] == {"partitions": 4, "old": 1}


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: List\nitems: 5",
        "apiVersion: v1\nkind: List\nitems: {a: 1}",
        "- !!int ''",
        "- !!float ''",
        "- !!bool maybe",
        "!!map [1]",
        "a: 0x" + "f" * 5000,
        "a: -9223372036854775808000",
    ],
)
def test_what_no_manifest_is_is_unreadable_and_nothing_else(text: str) -> None:
    with pytest.raises(UnreadableManifest):
        read_objects(text)
