"""Text of others as it may be shown: names and values can hold what drives a terminal."""

import re

# DEL and C1, and what turns the direction of text or ends a line.
CONTROLS = "\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_C0 = "\x00-\x1f"
# What surrogateescape makes of bytes that are no UTF-8.
_BYTES = "\udc80-\udcff"
_UNSAFE = re.compile(f"[{_C0}{CONTROLS}{_BYTES}]")
_UNSAFE_OR_BACKSLASH = re.compile(f"[\\\\{_C0}{CONTROLS}{_BYTES}]")
_IN_JSON = re.compile(f"[{CONTROLS}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_FIRST_BYTE = 0xDC80


def visible(text: str) -> str:
    """Without anything that a terminal acts on."""
    return _UNSAFE.sub(_escape, text)


def escaped(data: bytes) -> str:
    """Return text on one line, visible, that no other bytes produce."""
    return _UNSAFE_OR_BACKSLASH.sub(_escape, data.decode(errors="surrogateescape"))


def visible_json(text: str) -> str:
    """Escape the control characters that a JSON encoder leaves in place."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    if short := _SHORT.get(match[0]):
        return short
    number = ord(match[0])
    if number >= _FIRST_BYTE:
        return f"\\x{number - 0xDC00:02x}"
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}"
