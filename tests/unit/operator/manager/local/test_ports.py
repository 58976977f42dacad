"""A port that another process has is told before a cluster begins, and before a broker starts."""

import asyncio
import socket
from pathlib import Path

import pytest
from tidemark_operator.manager.local.main import earlier_brokers, until_free

HOST = "127.0.0.1"


def test_taken_port_is_refused_at_once_with_its_number_and_what_to_do() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} .* is in use by .* --kafka-port"):
            asyncio.run(until_free(HOST, [port], seconds=60))


def test_brokers_of_an_earlier_run_are_waited_for_and_told() -> None:
    reported: list[str] = []

    async def story() -> None:
        taken = socket.create_server((HOST, 0))
        ports = [taken.getsockname()[1]]
        waiting = asyncio.create_task(
            until_free(HOST, ports, seconds=60, ending=lambda: [7, 8], tell=reported.append)
        )
        await asyncio.sleep(0)
        assert not waiting.done()
        taken.close()
        await waiting

    asyncio.run(story())
    assert reported == [
        "waiting up to 60 s for brokers of an earlier run to stop (processes 7, 8)",
    ]


def test_only_brokers_of_this_data_directory_are_of_an_earlier_run(tmp_path: Path) -> None:
    commands = {
        "10": "python -m tidemark_broker.main --broker-id 0 --data-dir /data/brokers/a/0",
        "11": "python -m tidemark_broker.main --broker-id 0 --data-dir /data2/brokers/a/0",
        "12": "less --data-dir /data/brokers",
        "self": "python -m tidemark_broker.main --data-dir /data/brokers/a/1",
    }
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (tmp_path / "13").mkdir()  # it has ended
    assert earlier_brokers(Path("/data"), processes=tmp_path) == (10,)
