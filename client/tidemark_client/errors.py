"""What a command says when it cannot do its work, and the exit codes.

A plain sentence comes first. What was expected, what was found and what to do stand below it where
they help. Exit codes: 0 all is well, 1 it was not done (not found, refused, records lost), 2 wrong
usage or no cluster to talk to, 70 (EX_SOFTWARE of sysexits) a defect of the command itself.
"""

from collections.abc import Iterable

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DEFECT = 70
MAX_LISTED = 20


class CommandFailed(Exception):
    """Ends a command; `main` prints it and exits with `exit_code`."""

    def __init__(
        self,
        sentence: str = "",
        *,
        expected: str = "",
        found: str = "",
        to_do: str = "",
        exit_code: int = EXIT_FAILED,
    ) -> None:
        """Without a `sentence` one is made of `expected` and `found`."""
        self.has_sentence = bool(sentence)
        self.sentence = sentence or f"expected {expected}, found {found}"
        super().__init__(f"{self.sentence}; {to_do}" if to_do else self.sentence)
        self.expected = expected
        self.found = found
        self.to_do = to_do
        self.exit_code = exit_code


def not_found(
    kind: str, name: object, known: Iterable[object], *, found: str = "", to_do: str = ""
) -> CommandFailed:
    """`known`: names of what there is of this kind; `found`: in the words of who was asked."""
    names = [str(each) for each in known]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    listed = f"{', '.join(names[:MAX_LISTED])}{more}" if names else "none"
    sentence = f"{kind} {str(name)!r} not found. {kind}s: {listed}"
    return CommandFailed(sentence, found=found, to_do=to_do)
