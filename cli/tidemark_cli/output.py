"""Print tables and sentences for people, or one JSON document per result (`-o json`).

Results go to stdout, remarks and errors to stderr. JSON keys are camelCase; until the next minor
release the former names stand beside them. Rich is imported only where something is drawn.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from tidemark_client.errors import CommandFailed

from tidemark_cli.terminal_text import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Output:
    def __init__(self, *, is_json: bool, console: "Console | None" = None) -> None:
        self.is_json = is_json
        self._given_console = console

    @cached_property
    def console(self) -> "Console":
        return self._given_console or _console(is_for_errors=False)

    @cached_property
    def _errors(self) -> "Console":
        return _console(is_for_errors=True)

    def result(self, value: Any, human: "Callable[[Console], None]") -> None:
        """`value` as JSON, or what `human` draws."""
        if self.is_json:
            self._write_json(with_camel_case(value))
        else:
            human(self.console)

    def remark(self, sentence: str) -> None:
        if not self.is_json:
            self._errors.print(sentence, markup=False)

    def progress(self, sentence: str) -> None:
        """Tell how far a wait is: over the last such line on a terminal, else below it."""
        if self.is_json or not self._errors.is_terminal:
            self.remark(sentence)
        else:
            self._over_line(sentence[: self._errors.width - 1])

    def end_progress(self) -> None:
        if not self.is_json and self._errors.is_terminal:
            self._over_line("")

    def _over_line(self, text: str) -> None:
        self._errors.file.write(f"\r\x1b[K{text}")  # rich leaves control codes out
        self._errors.file.flush()

    def failure(self, failed: CommandFailed) -> None:
        if self.is_json:
            value = {
                "error": {
                    "message": failed.sentence,
                    "expected": failed.expected,
                    # Scripts written before `message` existed read the sentence here.
                    "found": failed.found or failed.sentence,
                    "toDo": failed.to_do or "correct the command",
                }
            }
            self._write_json(value)
            return
        self._errors.print("[bold red]error:[/]", end=" ")
        self._errors.print(_lines(failed.sentence), markup=False)
        # Where the sentence was made of these two they are said already.
        parts = [("expected", failed.expected), ("found", failed.found)] * failed.has_sentence
        for label, text in (*parts, ("what to do", failed.to_do)):
            if text:
                self._errors.print(f"  {label + ':':12}{_lines(text)}", markup=False)

    def _write_json(self, value: Any) -> None:
        sys.stdout.write(visible_json(msgspec.json.encode(value).decode()) + "\n")
        sys.stdout.flush()


def with_camel_case(value: Any) -> Any:
    """Return plain values with a dataclass's fields in camelCase beside their own names.

    Keys of a mapping are data and stay.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            plain = with_camel_case(getattr(value, field.name))
            fields[camel_case(field.name)] = plain
            fields[field.name] = plain
        return fields
    if isinstance(value, Mapping):
        return {name: with_camel_case(child) for name, child in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [with_camel_case(child) for child in value]
    return value


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _lines(text: str) -> str:
    """Our own sentences have line ends, and what they quote may have anything else."""
    return "\n".join(map(visible, text.split("\n")))


def _console(*, is_for_errors: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=is_for_errors, highlight=False, soft_wrap=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "Text":
    """Return a plain table as kubectl prints it: no lines, capital headings, nothing truncated.

    Without columns there is no heading.
    """
    from rich.text import Text

    heads = [[column.upper() for column in columns]] if columns else []
    lines = heads + [[visible(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    drawn = Text(no_wrap=True, overflow="ignore")
    for number, line in enumerate(lines):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        drawn.append("   ".join(cells).rstrip(), style="bold" if number < len(heads) else "")
        drawn.append("\n" if number + 1 < len(lines) else "")
    return drawn
