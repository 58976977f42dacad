"""Write logs as JSON lines: a constant message with its fields beside it."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from tidemark_protocol.log_text import escape_line

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
# kopf says of every event that its handler succeeded, and attaches whole objects.
_QUIET = ("kopf", "aiohttp.access", "asyncio")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD and not name.startswith("k8s_") and name != "settings":
                line[name] = value if isinstance(value, str | int | float | bool) else str(value)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return escape_line(json.dumps(line, ensure_ascii=False))


class Lines(logging.StreamHandler[TextIO]):
    """A handler that drops what cannot be written, as on a full disk, and later says how much.

    A traceback for each line would hide other lines.
    """

    def __init__(self, file: TextIO) -> None:
        super().__init__(file)
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if self.dropped:
                notice = logging.makeLogRecord(
                    {
                        "name": __name__,
                        "levelname": "WARNING",
                        "msg": "log lines not written",
                        "dropped": self.dropped,
                    }
                )
                line = f"{self.format(notice)}\n{line}"
            self.stream.write(line + self.terminator)
            self.stream.flush()
        except OSError:
            self.dropped += 1
        except Exception:  # as logging does
            self.handleError(record)
        else:
            self.dropped = 0


def set_up(level: str, *, file: TextIO | None = None) -> None:
    """Log to `file`, or to stderr."""
    handler = Lines(file or sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
