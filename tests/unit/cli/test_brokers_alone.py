"""Commands that were given a broker's address: no controller is asked."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from tidemark_cli.arguments import parse
from tidemark_cli.commands import consume, produce, status
from tidemark_cli.output import Output
from tidemark_client.errors import EXIT_FAILED, CommandFailed

from tests.support.fake_http_broker import TOPIC, FakeCluster
from tests.support.waiting import HANG_SECONDS


def _run(*words: str, is_json: bool = False) -> int:
    async def experiment() -> int:
        async with FakeCluster() as cluster:
            arguments = parse([*words, "--server", cluster.url(0)])
            module = {"status": status, "produce": produce, "consume": consume}[words[0]]
            return int(await module.run(arguments, Output(is_json=is_json)))

    return asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))


def test_status_names_the_pool_of_brokers_and_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("status", is_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(view["topic"], view["pool"]) for view in found["topics"]] == [(TOPIC, "default")]
    assert {row["pool"] for row in found["brokers"]} == {"default"}


def test_status_of_one_pool_has_no_column_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    _run("status")
    assert "POOL" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [("produce", "nope", "x"), ("consume", "nope")])
def test_a_topic_that_is_not_there_is_told_in_one_sentence(words: Sequence[str]) -> None:
    with pytest.raises(CommandFailed) as failed:
        _run(*words)
    assert failed.value.sentence == f"Topic 'nope' not found. Topics: {TOPIC}"
    assert failed.value.exit_code == EXIT_FAILED
