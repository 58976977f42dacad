"""Print the demo: chapters, events with their time, a spinner on a terminal, a table at the end.

Without a terminal the same is printed as plain lines.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from rich.console import Console
from tidemark_chaos.environments.prometheus import AuditResponse
from tidemark_client.metadata import TopicView

from tidemark_cli.output import table

PERCENTILES = ("p50", "p99", "max")
# After PASSED another verdict would read as a contradiction.
AUDIT_WORDS = {
    "VIOLATED": "the audit applies production objectives, so the faults above count as violations:",
    "INCONCLUSIVE": "PASSED is based on the records; samples alone do not suffice for a verdict:",
    "LOSS": "metrics disagree with the records that were read; please report this:",
    "NO-SOURCE": "PASSED is based on the records; the audit had no samples:",
}


class Result(Protocol):
    """Hold what the verdict is printed from (`experiment.DemoReport`)."""

    @property
    def is_good(self) -> bool: ...
    @property
    def acknowledged(self) -> int: ...
    @property
    def found(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def duplicated(self) -> int: ...
    @property
    def unknown(self) -> int: ...
    @property
    def unknown_found(self) -> int: ...
    @property
    def replicas_identical(self) -> bool: ...
    @property
    def write_gap_ms(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


class ProgressOutput:
    """Create the output; with `is_quiet` it prints nothing (for -o json)."""

    def __init__(self, console: Console, *, is_quiet: bool = False) -> None:
        self._console = console
        self._is_quiet = is_quiet

    def opening(self, sentence: str) -> None:
        self._print("[bold]Tidemark[/]: a leader is killed under load, and nothing is lost")
        self._print(f"[dim]{sentence}[/]")

    def closing(self, sentence: str) -> None:
        self._print(f"\n[dim]{sentence}[/]")

    def chapter(self, title: str) -> None:
        self._print(f"\n[bold]{title}[/]")

    def line(self, sentence: str) -> None:
        self._print(f"            {sentence}")

    def moment(self, after_ms: float, sentence: str) -> None:
        self._print(f"  [cyan]{after_ms / 1000:7.3f} s[/]  {sentence}")

    def topic(self, topic: TopicView) -> None:
        for view in topic.partitions:
            in_sync = ",".join(str(broker_id) for broker_id in view.in_sync_replicas)
            self.line(f"{topic.topic}-{view.partition}  leader {view.leader}  in sync {in_sync}")

    @contextlib.contextmanager
    def progress(self, phrase: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner with a phrase; the yielded function changes the phrase."""
        if self._is_quiet:
            yield lambda phrase: None
        elif self._console.is_terminal:
            with self._console.status(phrase) as status:
                yield lambda phrase: status.update(phrase)
        else:
            yield lambda phrase: self.line(f"{phrase} ...")

    def verdict(self, result: Result) -> None:
        if self._is_quiet:
            return
        unknown = f"{result.unknown}"
        if result.unknown:
            unknown += f"  (response lost with the broker; {result.unknown_found} are in the log)"
        rows = [
            ("acknowledged", result.acknowledged),
            ("found", result.found),
            ("lost", result.lost),
            ("duplicated", result.duplicated),
            ("unknown", unknown),
            ("replicas", "identical" if result.replicas_identical else "DIFFER"),
            ("longest write gap", f"{result.write_gap_ms:.0f} ms"),
        ]
        self._console.print(table((), rows))
        for note in result.notes:
            self._console.print(f"  {note}", style="red", markup=False)
        if result.is_good:
            words = "nothing lost, nothing duplicated"
            self._print(f"\n[bold green]PASSED[/]  {words} ({result.seconds:.0f} s)")
        else:
            self._print("\n[bold red]FAILED[/]  a guarantee was broken: see above")

    def audit(self, answer: AuditResponse | str) -> None:
        """Verdict and incidents of `tidemark audit` over the run, or why there are none."""
        if self._is_quiet:
            return
        if isinstance(answer, str):
            self.line(f"none: {answer}")
            return
        if answer.verdict in AUDIT_WORDS:
            self.line(AUDIT_WORDS[answer.verdict])
        self._console.print(f"  {answer.verdict}  {answer.sentence}", markup=False, style="bold")
        for incident in answer.incidents:
            self._console.print(f"            {incident}", markup=False)
        self.line(f"report: {answer.page}")

    def figures(self, by_kind: Mapping[str, Mapping[str, Any]]) -> None:
        """Print p50, p99 and maximum of each time in ms, over many rounds."""
        if self._is_quiet:
            return
        names = {
            "write_gap_ms": "write gap",
            "leader_after_ms": "leader elected",
            "isr_full_again_ms": "in sync again",
        }
        rows = [
            (kind, figures["rounds"], name, *(f"{figures[key][n]:.0f}" for n in PERCENTILES))
            for kind, figures in by_kind.items()
            for key, name in names.items()
            if key in figures
        ]
        self._console.print(table(("rounds of", "", "ms", *PERCENTILES), rows))

    def _print(self, text: str) -> None:
        if not self._is_quiet:
            self._console.print(text)
