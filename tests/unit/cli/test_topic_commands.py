"""`tidemark topics`, `status` and `drain` against a controller of local mode."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_cli import topic_readiness
from tidemark_cli.arguments import parse
from tidemark_cli.commands import drain
from tidemark_client import targets
from tidemark_client.errors import EXIT_FAILED, CommandFailed
from tidemark_client.targets import find_brokers

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
    monkeypatch.setattr(topic_readiness, "POLL_SECONDS", 0)
    monkeypatch.setattr(targets, "START_POLL_SECONDS", 0)
    monkeypatch.setattr(drain, "POLL_SECONDS", 0)
    monkeypatch.delenv("TIDEMARK_SERVER", raising=False)


def of_two_topics() -> FakeController:
    """`second` claims the name that `orders` has."""
    controller = FakeController()
    controller.topic("orders", partition(0, 0, 0, 1, 2))
    controller.objects["topics"] = [
        topic_object("orders"),
        topic_object("second", "TopicNameTaken: belongs to the older Topic", topicName="orders"),
    ]
    return controller


def test_describe_shows_the_own_partitions_of_a_topic_object() -> None:
    said = run_command(of_two_topics(), "topics", "describe", "second").out
    assert "no partitions" in said
    assert "TopicNameTaken: belongs to the older Topic" in said
    said = run_command(of_two_topics(), "topics", "describe", "orders").out
    assert "0,1,2" in said


def test_topics_that_are_not_ready_are_listed_with_why() -> None:
    for words in (("topics",), ("topics", "list")):
        said = run_command(of_two_topics(), *words).out
        assert said.splitlines()[0].endswith("READY")
        assert [line.split()[-1] for line in said.splitlines()[1:3]] == ["yes", "no"]
        assert "Topic second is not ready: belongs to the older Topic" in said


def test_internal_topics_are_shown_when_asked_for() -> None:
    controller = FakeController()
    controller.topic("__consumer_offsets", partition(0, -1, 0, 1))
    for command in ("topics", "status"):
        assert "rack" in run_command(controller, "status").out
        withheld = run_command(controller, command).out
        shown = run_command(controller, command, "--internal").out
        assert "__consumer_offsets   " not in withheld
        assert "__consumer_offsets   " in shown
    assert "1 of 1 partitions under-replicated, 1 without a leader" in withheld
    assert "__consumer_offsets   0" in run_command(controller, "status", "__consumer_offsets").out


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "describe", "nope"),
        ("topics", "alter", "nope", "--partitions", "2"),
        ("topics", "delete", "nope"),
        ("status", "nope"),
        ("move", "nope", "0", "--to", "1"),
        ("elect", "nope", "0", "1"),
    ],
)
def test_not_found_is_one_sentence_and_one_exit_code(words: tuple[str, ...]) -> None:
    failed = rejection(of_two_topics(), *words)
    assert failed.sentence.startswith("Topic 'nope' not found. Topics: orders")
    assert failed.exit_code == EXIT_FAILED


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("drain", "9"), "BrokerPool 'default' has no broker 9. Brokers: 0, 1, 2"),
        (("elect", "orders", "7", "0"), "Partition 'orders-7' not found. Partitions: orders-0"),
        (("status", "--pool", "x"), "BrokerPool 'x' not found. BrokerPools: default"),
        (("topics", "create", "t", "--pool", "x"), "BrokerPool 'x' not found."),
        (("why", "orders", "--pool", "x"), "BrokerPool 'x' not found. BrokerPools: default"),
        (("elect", "orders", "0", "0", "--pool", "x"), "BrokerPool 'x' not found."),
    ],
)
def test_other_things_that_are_not_found_are_told_alike(
    words: tuple[str, ...], sentence: str
) -> None:
    failed = rejection(of_two_topics(), *words)
    assert failed.sentence.startswith(sentence)
    assert failed.exit_code == EXIT_FAILED


def test_a_store_that_fails_is_not_called_a_bad_command() -> None:
    controller = FakeController(store_failure="SQLite store: database or disk is full")
    failed = rejection(controller, "topics", "create", "t")
    assert "could not be stored: SQLite store: database or disk is full" in failed.sentence
    assert failed.to_do.startswith("if the disk")


def test_topics_of_all_pools_are_named_to_who_produces() -> None:
    controller = FakeController(states={"default": ["Active"], "payments": ["Active"]})
    controller.topic("orders", partition(0, 0, 0))
    controller.topic("transfers", partition(0, 0, 0), pool="payments")
    failed = rejection(controller, "produce", "nope", "x")
    assert failed.sentence == "Topic 'nope' not found. Topics: orders, transfers"


def test_create_refuses_more_replicas_than_there_are_brokers() -> None:
    controller = FakeController()
    controller.objects["brokerpools"] = [pool_object(drain=[2])]
    failed = rejection(controller, "topics", "create", "t", "--replication-factor", "3")
    assert failed.sentence == "Replication factor: 3 larger than available brokers: 2."
    assert controller.objects["topics"] == []


def test_create_waits_until_the_topic_is_ready() -> None:
    controller = FakeController()

    def become_ready(fake: FakeController) -> None:
        reads.append(1)
        if len(reads) == 4:
            fake.objects["topics"] = [topic_object("t")]

    reads: list[int] = []
    controller.on_status = become_ready
    assert run_command(controller, "topics", "create", "t").out == "topic t created\n"
    assert len(reads) >= 4


def test_create_without_waiting_returns_at_once() -> None:
    controller = FakeController()
    assert run_command(controller, "topics", "create", "t", "--no-wait").code == 0
    assert controller.objects["topics"][0]["metadata"]["name"] == "t"


def test_create_that_cannot_become_ready_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = FakeController()

    def reject(fake: FakeController) -> None:
        if fake.objects["topics"]:
            fake.objects["topics"] = [topic_object("t", "RetainedDataDiffers: has 4 partitions")]

    controller.on_status = reject
    failed = rejection(controller, "topics", "create", "t")
    assert failed.sentence == "Topic 't' was created and is not ready: has 4 partitions"
    assert failed.exit_code == EXIT_FAILED
    monkeypatch.setattr(topic_readiness, "READY_SECONDS", 0.05)
    controller = FakeController()
    assert (
        "the operator has not processed" in rejection(controller, "topics", "create", "t").sentence
    )


def test_create_tells_how_many_partitions_are_led(capsys: pytest.CaptureFixture[str]) -> None:
    controller = FakeController()

    def lead(fake: FakeController) -> None:
        if fake.objects["topics"]:
            led = len(fake.topics)
            fake.topics = []
            fake.topic("t", *(partition(number, number - led, 0) for number in range(2)))
            if led:
                fake.objects["topics"] = [topic_object("t")]

    controller.on_status = lead
    run_command(controller, "topics", "create", "t", "--partitions", "2")
    assert "topic t: 1 of 2 partitions have a leader" in capsys.readouterr().err


def two_pools() -> FakeController:
    controller = FakeController(states={"default": ["Active"], "payments": ["Active"] * 2})
    controller.topic("clicks", partition(0, 0, 0))
    controller.topic("transfers", partition(0, 1, 0, 1), pool="payments")
    controller.topic("both", partition(0, 0, 0))
    controller.topic("both", partition(0, 0, 0), pool="payments", objectName="both-2")
    controller.objects["topics"] = [
        topic_object("clicks"),
        topic_object("transfers", brokerPool="payments"),
        topic_object("both"),
        topic_object("both-2", topicName="both", brokerPool="payments"),
    ]
    controller.objects["brokerpools"] = [pool_object(), pool_object("payments")]
    return controller


def brokers_for(controller: FakeController, *words: str) -> list[str]:
    from aiohttp.test_utils import TestServer

    async def found() -> list[str]:
        async with TestServer(controller.app()) as server:
            controller.url = f"http://{server.host}:{server.port}"
            arguments = parse([*words, "--server", controller.url])
            urls = await find_brokers(arguments)
            return [url.removeprefix(controller.url) for url in urls]

    return asyncio.run(found())


def test_brokers_are_those_of_the_topics_pool() -> None:
    assert brokers_for(two_pools(), "produce", "clicks", "x") == ["/default/0"]
    assert brokers_for(two_pools(), "consume", "transfers") == ["/payments/0", "/payments/1"]
    assert brokers_for(two_pools(), "produce", "new", "x") == ["/default/0"]
    assert brokers_for(two_pools(), "--pool", "payments", "produce", "both", "x") == [
        "/payments/0",
        "/payments/1",
    ]


def test_topic_of_several_pools_needs_a_pool() -> None:
    for words in (("topics", "describe", "both"), ("topics", "delete", "both")):
        assert "in several pools: default, payments" in rejection(two_pools(), *words).sentence
    said = run_command(two_pools(), "topics", "describe", "both", "--pool", "payments").out
    assert "Topic both-2" in said


@pytest.mark.parametrize("command", ["topics", "status"])
def test_pools_are_a_column_where_there_are_several(command: str) -> None:
    controller = two_pools()
    controller.topics = [each for each in controller.topics if each["topic"] != "both"]
    said = run_command(controller, command).out
    assert "POOL" in said
    assert "payments" in said
    assert "clicks" not in run_command(controller, command, "--pool", "payments").out
    assert "POOL" not in run_command(of_two_topics(), command).out


def test_command_waits_for_a_pool_that_starts() -> None:
    controller = FakeController(states={"default": ["Starting", "Starting"]})
    reads: list[int] = []

    def start(fake: FakeController) -> None:
        reads.append(1)
        if len(reads) == 3:
            fake.states = {"default": ["Active", "Starting"]}

    controller.on_status = start
    assert brokers_for(controller, "produce", "orders", "x") == ["/default/0"]


def test_pool_that_does_not_start_is_told_with_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "START_SECONDS", 0.0)
    failed = rejection(FakeController(states={"default": []}), "produce", "orders", "x")
    assert "BrokerPool 'default' has no broker" in failed.sentence


def test_status_tells_that_brokers_start() -> None:
    controller = FakeController(states={"default": ["Active", "Fenced", "Starting", "Gone"]})
    controller.objects["topics"] = [
        topic_object("orders", "Leaderless: no leader: partitions 0"),
        topic_object("big", "NotEnoughBrokers: needs 5 brokers"),
    ]
    said = run_command(controller, "status").out
    assert said.startswith("1 of 3 brokers up\n")
    assert "no leader" in said
    controller.uptime_ms = 2000
    said = run_command(controller, "status").out
    assert said.startswith("starting: 1 of 3 brokers up\n")
    assert "no leader" not in said  # brokers mend that by coming up
    assert "needs 5 brokers" in said


@pytest.mark.parametrize(
    ("states", "leader", "ready", "code"),
    [
        (["Active"] * 3, 0, "", 0),
        (["Active", "Active", "Fenced"], 0, "", 1),
        (["Active"] * 3, -1, "", 1),
        (["Active"] * 3, 0, "NotEnoughBrokers: needs 5", 1),
    ],
)
def test_status_check_ends_with_what_it_found(
    states: list[str], leader: int, ready: str, code: int
) -> None:
    controller = FakeController(states={"default": states})
    controller.topic("orders", partition(0, leader, 0, 1, 2))
    controller.objects["topics"] = [topic_object("orders", ready)]
    assert run_command(controller, "status", "--check").code == code
    assert run_command(controller, "status").code == 0


def test_drain_tells_topic_and_partition_and_writes_the_pool() -> None:
    controller = FakeController()
    controller.topic("orders", partition(0, 0, 0, 1), partition(1, 1, 1, 2))
    controller.objects["topics"] = [topic_object("orders", replicationFactor=2)]
    said = run_command(controller, "drain", "0").out
    assert "1 replica remaining: orders-0" in said
    assert controller.patches == [("default", {"spec": {"drain": [0]}})]


def test_drain_waits_until_the_broker_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    controller = FakeController()
    controller.topic("orders", partition(0, 0, 0, 1))

    def move(fake: FakeController) -> None:
        if fake.patches:
            reads.append(1)
        if len(reads) == 3:
            fake.topics = []
            fake.topic("orders", partition(0, 2, 2, 1))

    reads: list[int] = []
    controller.on_status = move
    assert "holds no replica" in run_command(controller, "drain", "0", "--wait").out
    assert "broker 0: 1 replica remaining: orders-0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        ({"replicationFactor": 3}, "topic orders has replication factor 3, but only 2 brokers"),
        (
            {"placement": [{"partition": 0, "replicas": [0]}]},
            "spec.placement of Topic orders places partitions 0 on it",
        ),
        (
            {},
            "retained data of topic old, partition 1, has 3 replicas, but only 2 brokers",
        ),
    ],
)
def test_drain_that_cannot_end_is_refused_with_why(spec: dict[str, Any], reported: str) -> None:
    controller = FakeController()
    controller.topic("orders", partition(0, 0, 0))
    if not spec:
        controller.topic("old", partition(0, 1, 1), partition(1, 1, 0, 1, 2), retained=True)
    controller.objects["topics"] = [topic_object("orders", **spec)]
    assert reported in rejection(controller, "drain", "0").sentence
    assert controller.patches == []


def test_drain_counts_retained_data_and_waits_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    controller = FakeController()
    controller.topic("old", partition(4, -1, 0, 1), retained=True)
    reads: list[int] = []

    def move(fake: FakeController) -> None:
        if fake.patches:
            reads.append(1)
        if len(reads) == 3:
            fake.topics = []
            fake.topic("old", partition(4, -1, 2, 1), retained=True)

    controller.on_status = move
    assert "holds no replica" in run_command(controller, "drain", "0", "--wait").out
    assert "broker 0: 1 replica remaining: old-4" in capsys.readouterr().err
    assert controller.patches == [("default", {"spec": {"drain": [0]}})]


def test_groups_of_several_pools_are_listed_with_their_pool() -> None:
    said = run_command(two_pools(), "groups").out
    assert said == "no consumer groups\n"
    for words in (("describe", "g"), ("g",), ("delete", "g"), ("reset", "g", "--to", "latest")):
        failed = rejection(two_pools(), "groups", *words)
        assert "several: default, payments" in failed.sentence
    failed = rejection(two_pools(), "groups", "g", "--pool", "payments")
    assert failed.sentence == "Group 'g' not found. Groups: none"


def test_status_is_shown_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise CommandFailed("Enough.")

    controller = FakeController()
    loop = SimpleNamespace(sleep=sleep, gather=asyncio.gather)
    monkeypatch.setattr("tidemark_cli.commands.status.asyncio", loop)
    with pytest.raises(CommandFailed, match="Enough"):
        run_command(controller, "status", "--watch", "3")
    assert pauses == [3, 3]
    monkeypatch.undo()
    assert "--watch above 0" in rejection(controller, "status", "--watch", "0").sentence
    assert "without --check" in rejection(controller, "status", "--watch", "--check").sentence
