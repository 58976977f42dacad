"""Local mode takes and refuses the manifests that a cluster takes and refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import TOPIC, Object
from tidemark_operator.manager.local.apply import (
    ManifestRejected,
    apply_manifests,
    create_object,
    patch_object,
)
from tidemark_operator.store.object_store import AlreadyExists
from tidemark_operator.store.sqlite import SqliteStore

HEAD = "apiVersion: tidemark.dev/v1alpha1\nkind: Topic\n"
ORDERS = HEAD + "metadata: {name: orders}\nspec: {partitions: 2, config: {retention.ms: '1000'}}\n"


def applied(store: SqliteStore, *texts: str) -> list[str]:
    async def story() -> list[str]:
        return [each.action for text in texts for each in await apply_manifests(store, text)]

    return asyncio.run(story())


def stored(store: SqliteStore, name: str = "orders") -> Object:
    found = asyncio.run(store.get(TOPIC, "default", name))
    assert found is not None
    return found


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "objects.db")


@pytest.mark.parametrize(
    ("manifest", "rule"),
    [
        ("metadata: {name: my_topic}\nspec: {}", 'Invalid value: "my_topic": a lowercase RFC 1123'),
        ("metadata: {name: Orders}\nspec: {}", "a lowercase RFC 1123 subdomain must consist of"),
        ("metadata: {name: ''}\nspec: {}", "a lowercase RFC 1123 subdomain must consist of"),
        (f"metadata: {{name: {'a' * 254}}}\nspec: {{}}", "must be no more than 253 characters"),
        ("metadata: {name: a, nam: b}\nspec: {}", 'unknown field "metadata.nam"'),
        ("metadata: {name: a}\nspeck: {}\nspec: {}", 'unknown field "speck"'),
        ("metadata: {name: a}\nspec: {parts: 1}", 'unknown field "spec.parts"'),
        ("metadata: {name: a}", "spec: Required value"),
        ("metadata: {name: a, namespace: shop}\nspec: {}", 'namespaces "shop" not found'),
        ("metadata: {name: a, labels: {k: 'a b'}}\nspec: {}", "a valid label must be an empty"),
        ("metadata: {name: a, labels: {'-k': v}}\nspec: {}", "name part must consist of"),
        ("metadata: {name: a, labels: {'A/k': v}}\nspec: {}", "prefix part a lowercase RFC 1123"),
        ("metadata: {name: a, annotations: {k: 1}}\nspec: {}", "expected a string, found 1"),
        ("metadata: {name: a, annotations: [k]}\nspec: {}", "expected an object"),
        ("metadata: {name: a, resourceVersion: '1'}\nspec: {}", "resourceVersion should not be"),
        ("metadata: {name: a}\nspec: {partitions: 1, partitions: 2}", "already set in map"),
        ("metadata: {name: a}\nspec: {partitions: .inf}", "expected a finite number"),
        ("metadata: {name: a}\nspec: !!set {a}", "expected a JSON value"),
        ("metadata: {name: a}\nspec: &a {config: *a}", "expected"),
    ],
)
def test_what_an_api_server_refuses_is_refused(
    store: SqliteStore, manifest: str, rule: str
) -> None:
    with pytest.raises(ManifestRejected) as refused:
        applied(store, f"{HEAD}{manifest}\n")
    assert rule in "; ".join(refused.value.problems)
    assert asyncio.run(store.list(TOPIC, None)) == []


def test_a_duplicate_key_is_told_with_its_line(store: SqliteStore) -> None:
    with pytest.raises(ManifestRejected, match='line 4: key "name" already set in map'):
        applied(store, HEAD + "metadata: {name: a,\n  name: b}\nspec: {}")


def test_one_refused_document_refuses_all(store: SqliteStore) -> None:
    with pytest.raises(ManifestRejected):
        applied(store, f"{ORDERS}---\n{HEAD}metadata: {{name: my_topic}}\nspec: {{}}\n")
    assert asyncio.run(store.list(TOPIC, None)) == []


def test_a_list_is_its_items(store: SqliteStore) -> None:
    item = "{apiVersion: tidemark.dev/v1alpha1, kind: Topic, metadata: {name: %s}, spec: {}}"
    text = f"apiVersion: v1\nkind: List\nitems: [{item % 'a'}, {item % 'b'}]\n"
    assert applied(store, text) == ["created", "created"]


def test_a_date_is_text(store: SqliteStore) -> None:
    applied(store, HEAD + "metadata: {name: orders, labels: {since: 2026-01-01}}\nspec: {}\n")
    assert stored(store)["metadata"]["labels"] == {"since": "2026-01-01"}


def test_an_object_twice_in_one_text_is_applied_in_turn(store: SqliteStore) -> None:
    second = ORDERS.replace("partitions: 2", "partitions: 3")
    assert applied(store, f"{ORDERS}---\n{second}") == ["created", "configured"]
    assert stored(store)["spec"]["partitions"] == 3


def test_apply_keeps_what_others_wrote_and_takes_back_what_it_said(store: SqliteStore) -> None:
    async def move() -> None:
        patch = b'{"spec": {"placement": [{"partition": 0, "replicas": [2, 1, 0]}]}}'
        await patch_object(store, TOPIC, "orders", patch)

    applied(store, ORDERS)
    asyncio.run(move())
    assert applied(store, ORDERS) == ["unchanged"]
    fewer = ORDERS.replace(", config: {retention.ms: '1000'}", "")
    assert applied(store, fewer) == ["configured"]
    spec = stored(store)["spec"]
    assert spec["placement"] == [{"partition": 0, "replicas": [2, 1, 0]}]
    assert "retention.ms" not in spec.get("config", {})


def test_annotations_and_labels_of_a_manifest_are_applied(store: SqliteStore) -> None:
    applied(store, ORDERS)
    marked = ORDERS.replace("name: orders", "name: orders, annotations: {team: shop}")
    assert applied(store, marked, marked, ORDERS) == ["configured", "unchanged", "configured"]
    assert "team" not in stored(store)["metadata"]["annotations"]


def test_what_was_read_from_a_cluster_can_be_applied(store: SqliteStore) -> None:
    metadata = "{name: orders, uid: x, generation: 7, managedFields: [{}]}"
    applied(store, f"{HEAD}metadata: {metadata}\nspec: {{}}\nstatus: {{inSync: '1/1'}}\n")
    found = stored(store)
    assert (found["metadata"]["generation"], "status" in found) == (1, False)
    assert "managedFields" not in found["metadata"]


@pytest.mark.parametrize(
    "patch",
    [
        b"[]",
        b'{"metadata": []}',
        b'{"metadata": {"name": "b"}}',
        b'{"metadata": {"annotations": {"a": 1}}}',
        b'{"spec": {"parts": 1}}',
    ],
)
def test_a_patch_is_judged_as_a_manifest_is(store: SqliteStore, patch: bytes) -> None:
    applied(store, ORDERS)
    with pytest.raises(ManifestRejected):
        asyncio.run(patch_object(store, TOPIC, "orders", patch))


def test_create_makes_an_object_once(store: SqliteStore) -> None:
    body = HEAD.replace("\n", ", ") + "metadata: {name: %s}, spec: {}"

    async def create(name: str) -> Any:
        return await create_object(store, TOPIC, f"{{{body % name}}}")

    assert asyncio.run(create("orders"))["spec"]["partitions"] == 1
    with pytest.raises(AlreadyExists):
        asyncio.run(create("orders"))
    with pytest.raises(ManifestRejected):
        asyncio.run(create("my_topic"))


class Busy(SqliteStore):
    """The operator writes a status between our read and our write, twice."""

    left = 2

    async def replace(self, kind: Any, item: Any) -> Any:
        if self.left:
            self.left -= 1
            found = await self.get(kind, "default", item["metadata"]["name"])
            assert found is not None
            await self.replace_status(kind, {**found, "status": {"inSync": str(self.left)}})
        return await super().replace(kind, item)


def test_write_of_the_operator_in_between_is_no_refusal(tmp_path: Path) -> None:
    store = Busy(tmp_path / "objects.db")
    assert applied(store, ORDERS, ORDERS.replace("partitions: 2", "partitions: 3")) == [
        "created",
        "configured",
    ]
    store.left = 2
    asyncio.run(patch_object(store, TOPIC, "orders", b'{"spec": {"partitions": 4}}'))
    assert stored(store)["spec"]["partitions"] == 4
