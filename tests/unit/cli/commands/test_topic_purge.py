"""`tidemark topics purge` against a controller of local mode."""

import io
from typing import Any

import pytest
from tidemark_cli.commands import topic_purge
from tidemark_client import targets
from tidemark_client.errors import EXIT_USAGE

from tests.unit.cli.fake_controller import (
    FakeController,
    partition,
    pool_object,
    rejection,
    run_command,
    topic_object,
)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_purge, "POLL_SECONDS", 0)
    monkeypatch.setattr(targets, "START_POLL_SECONDS", 0)
    monkeypatch.delenv("TIDEMARK_SERVER", raising=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def with_retained(result: str = "Purged", **spec: Any) -> FakeController:
    """`old` is retained; the operator gives each name that it has no result of this one."""

    def act(pool: dict[str, Any], patch: Any) -> None:
        pool["spec"] |= patch["spec"]
        known = {each["topicName"]: each for each in pool["status"]["purgeRetained"]}
        pool["status"]["purgeRetained"] = [
            known.get(name, {"topicName": name, "result": result})
            for name in pool["spec"]["purgeRetained"]
        ]

    controller = FakeController(on_patch=act)
    controller.topic("old", partition(0, -1, 0), partition(1, -1, 1), retained=True)
    controller.topic("orders", partition(0, 0, 0))
    controller.objects["topics"] = [topic_object("orders")]
    names = spec.get("purgeRetained", [])
    reported = [{"topicName": name, "result": "Purged"} for name in names]
    controller.objects["brokerpools"] = [
        pool_object(**spec) | {"status": {"purgeRetained": reported}}
    ]
    return controller


def written(controller: FakeController) -> list[list[str]]:
    return [patch["spec"]["purgeRetained"] for _, patch in controller.patches]


def test_purge_asks_the_operator_and_takes_the_name_off_again() -> None:
    controller = with_retained(purgeRetained=["other"])
    said = run_command(controller, "topics", "purge", "old", "--yes").out
    assert said == "retained data of topic old purged from pool default\n"
    assert written(controller) == [["other", "old"], ["other"]]


def test_purge_of_a_name_that_was_acted_on_asks_again() -> None:
    controller = with_retained(purgeRetained=["old"])
    run_command(controller, "topics", "purge", "old", "--yes")
    assert written(controller) == [[], ["old"], []]


def test_purge_asks_for_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = with_retained()
    monkeypatch.setattr("sys.stdin", Terminal("orders\n"))
    assert rejection(controller, "topics", "purge", "old").sentence == "Nothing was deleted."
    monkeypatch.setattr("sys.stdin", io.StringIO("old\n"))
    failed = rejection(controller, "topics", "purge", "old")
    assert (
        failed.sentence == "A purge deletes 2 partitions of topic old in pool default permanently."
    )
    assert failed.exit_code == EXIT_USAGE
    assert written(controller) == []
    monkeypatch.setattr("sys.stdin", Terminal("old\n"))
    run_command(controller, "topics", "purge", "old")
    assert written(controller) == [["old"], []]


def test_purge_of_a_topic_that_is_not_retained_is_refused() -> None:
    controller = with_retained()
    for name in ("orders", "nope"):
        failed = rejection(controller, "topics", "purge", name, "--yes")
        assert failed.sentence == f"Retained topic {name!r} not found. Retained topics: old"
    controller.objects["topics"].append(topic_object("heir", topicName="old"))
    failed = rejection(controller, "topics", "purge", "old", "--yes")
    assert failed.sentence == "Topic 'old' has a Topic object: nothing was deleted."
    assert written(controller) == []


def test_purge_tells_that_a_topic_came_first() -> None:
    controller = with_retained("HasTopic")
    failed = rejection(controller, "topics", "purge", "old", "--yes")
    assert failed.sentence == "Topic 'old' has a Topic object: nothing was deleted."
    assert written(controller) == [["old"], []]
