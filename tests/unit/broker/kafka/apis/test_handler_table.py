"""Compare the offered APIs with docs/user/kafka.md."""

import re
from pathlib import Path

from tidemark_broker.kafka_wire.messages.frames import API_NAMES

from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client

ROW = re.compile(r"\| ([A-Z][A-Za-z, ]+) \| ([0-9, -]+) \|")


def test_the_table_of_the_documentation_says_what_is_offered(tmp_path: Path) -> None:
    text = (Path(__file__).parents[5] / "docs" / "user" / "kafka.md").read_text()
    documented: dict[str, str] = {}
    for row in filter(None, map(ROW.match, text.splitlines())):
        names, versions = row[1].split(", "), row[2].split(", ")
        documented |= zip(names, versions * (len(names) // len(versions)), strict=True)

    async def scenario(kafka_client: KafkaTestClient) -> None:
        offered = {
            API_NAMES[key]: handler.supported
            for key, handler in kafka_client.context.handlers.items()
        }
        reported = {
            name: f"{api.min_version}-{api.max_version}" if api.max_version else "0"
            for name, api in offered.items()
        }
        assert reported == documented

    with_kafka_client(tmp_path, scenario)
