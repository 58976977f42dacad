"""Log lines that cannot be written are dropped and counted."""

import io
import json
import logging

import pytest
from tidemark_operator.manager.json_log import JsonLines, Lines


class Disk(io.StringIO):
    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_a_full_disk_refuses_are_counted_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = Disk()
    lines = Lines(disk)
    lines.setFormatter(JsonLines())
    log = logging.Logger("test")
    log.addHandler(lines)
    log.info("one")
    disk.is_full = True
    log.info("two")
    log.info("three")
    disk.is_full = False
    log.info("four")
    found = [json.loads(line) for line in disk.getvalue().splitlines()]
    assert [(line["message"], line.get("dropped")) for line in found] == [
        ("one", None),
        ("log lines not written", 2),
        ("four", None),
    ]
    assert capsys.readouterr().err == ""
