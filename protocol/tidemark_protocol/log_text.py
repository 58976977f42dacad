"""Escape in a line of the log what a terminal or a reader of lines would act on.

JSON leaves characters above U+007F as they are. Some of them end a line for many readers (U+0085,
U+2028, U+2029), are control sequences, or change the direction of text: a client that names such a
topic could write what looks like a line of its own.
"""

_ESCAPED = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x7F, 0xA0),
        *range(0x200E, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
}


def escape_line(line: str) -> str:
    """Return a line of JSON with the same meaning."""
    return line if line.isascii() and "\x7f" not in line else line.translate(_ESCAPED)
