"""`tidemark isr` prints the in-sync sets of one pool."""

import json

import pytest

from tests.unit.cli.fake_controller import FakeController, partition, rejection, run_command


def controller() -> FakeController:
    fake = FakeController()
    fake.topic("orders", partition(0, 0, 0, 1), partition(1, -1, 0, 1))
    fake.topic("other", partition(0, 2, 2))
    return fake


def test_the_state_is_printed_once_without_watch() -> None:
    lines = run_command(controller(), "isr").out.splitlines()
    assert lines[:2] == ["pool default", "3 of 3 brokers active · 1 no leader, 2 in sync"]
    assert any(line.startswith("✕ orders") for line in lines)


def test_disks_and_catching_up_come_from_the_controller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = controller()
    progress = {"partition": 1, "brokerId": 1, "lagRecords": 50}
    unknown = {"recordsPerSecond": None, "toGoMs": None}
    disk = {"diskFreeBytes": 10**9, "diskSizeBytes": 10**10, "diskState": "NearlyFull"}
    fake.figures = {
        "brokers": [{"brokerId": 0, "silenceMs": 1} | disk],
        "catchingUp": [{"topic": name} | progress | unknown for name in ("orders", "other")],
    }
    lines = run_command(fake, "isr", "other").out.splitlines()
    assert any(line.endswith("1.0 GB of 10.0 GB free, nearly full") for line in lines)
    assert "other-1 on broker 1: 50 behind" in lines
    assert not any(line.startswith("orders") for line in lines)
    run_command(fake, "isr", is_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["brokers"][:2] == [
        {"brokerId": 0, "state": "Active"} | disk,
        {"brokerId": 1, "state": "Active"},
    ]
    assert [each["topic"] for each in document["catchingUp"]] == ["orders", "other"]


def test_one_topic_can_be_shown_alone() -> None:
    text = run_command(controller(), "isr", "other").out
    assert "other" in text and "orders" not in text


def test_what_is_not_there_is_named() -> None:
    assert "'nothing' not found" in rejection(controller(), "isr", "nothing").sentence
    assert "'x' not found" in rejection(controller(), "isr", "--pool", "x").sentence
    for text in ("0", "nan", "inf", "-1"):
        words = ("isr", f"--watch={text}")
        assert "--watch from 0.1 to 3600 seconds" in rejection(controller(), *words).sentence
