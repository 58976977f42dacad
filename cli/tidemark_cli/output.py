"""How commands speak: tables and sentences for people, or one JSON document per answer (`-o json`).

Results go to stdout, remarks and errors to stderr. Rich is imported where something is drawn.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from tidemark_cli.failures import CommandFailed
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
            self._write_json(value)
        else:
            human(self.console)

    def remark(self, sentence: str) -> None:
        if not self.is_json:
            self._errors.print(sentence, markup=False)

    def failure(self, failed: CommandFailed) -> None:
        if self.is_json:
            value = {
                "error": {
                    "expected": failed.expected,
                    "found": failed.found,
                    "toDo": failed.to_do,
                }
            }
            self._write_json(value)
            return
        self._errors.print("[bold red]error[/]")
        for label, text in (
            ("expected", failed.expected),
            ("found", failed.found),
            ("what to do", failed.to_do),
        ):
            self._errors.print(f"  {label + ':':12}{_lines(text)}", markup=False)

    def _write_json(self, value: Any) -> None:
        sys.stdout.write(visible_json(msgspec.json.encode(value).decode()) + "\n")
        sys.stdout.flush()


def _lines(text: str) -> str:
    """Our own sentences have line ends, and what they quote may have anything else."""
    return "\n".join(map(visible, text.split("\n")))


def _console(*, is_for_errors: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=is_for_errors, highlight=False, soft_wrap=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "Text":
    """A plain table in kubectl's manner: no lines, capitals on top, nothing cut however wide.
    Without columns there is no line of them."""
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
