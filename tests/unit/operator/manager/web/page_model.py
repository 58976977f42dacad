"""What a page knows of a pool after the messages that it got: static/model.js in a few lines."""

import json
from collections.abc import Iterable
from typing import Any

from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.manager.web.documents import partition_row


class PageModel:
    def __init__(self) -> None:
        self.version = ""
        self.heads: dict[str, Any] = {}
        self.rows: dict[str, dict[int, list[Any]]] = {}
        self.brokers: dict[int, str] = {}
        self.events: list[Any] = []
        self.received: list[str] = []
        self.disk: dict[str, Any] = {}

    def read(self, text: str) -> None:
        """Read complete server-sent events."""
        for block in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in fields:
                self.message(fields["event"], json.loads(fields["data"]))

    def message(self, event: str, data: Any) -> None:
        self.received.append(event)
        if event == "begin":
            self.heads, self.rows, self.brokers = {}, {}, {}
        if event == "beat":
            self.disk = data["disk"]
        if event in ("begin", "part", "change", "end"):
            self._apply(data)

    def _apply(self, data: Any) -> None:
        self.version = data.get("version", self.version)
        for broker in data.get("brokers", ()):
            self.brokers[broker["id"]] = broker["state"]
        for topic_id in data.get("deleted", ()):
            self.heads.pop(topic_id, None)
            self.rows.pop(topic_id, None)
        topics = data.get("topics", ())
        for topic in topics if isinstance(topics, list) else ():
            self.heads[topic["id"]] = topic.get("head", self.heads.get(topic["id"]))
            rows = self.rows.setdefault(topic["id"], {})
            rows.update({row[0]: row for row in topic["rows"]})
            for number in topic.get("gone", ()):
                rows.pop(number, None)
        self.events += data.get("events", ())

    def knows(self, views: Iterable[TopicView]) -> bool:
        """Return whether it has these topics and their partitions, and no others."""
        expected = {
            view.topic.topic_id: {
                state.partition: json.loads(json.dumps(partition_row(state)))
                for state in view.partitions
            }
            for view in views
        }
        return self.rows == expected
