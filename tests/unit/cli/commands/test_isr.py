"""`tidemark isr` prints the in-sync sets of one pool."""

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


def test_one_topic_can_be_shown_alone() -> None:
    text = run_command(controller(), "isr", "other").out
    assert "other" in text and "orders" not in text


def test_what_is_not_there_is_named() -> None:
    assert "'nothing' not found" in rejection(controller(), "isr", "nothing").sentence
    assert "'x' not found" in rejection(controller(), "isr", "--pool", "x").sentence
    for text in ("0", "nan", "inf", "-1"):
        words = ("isr", f"--watch={text}")
        assert "--watch from 0.1 to 3600 seconds" in rejection(controller(), *words).sentence
