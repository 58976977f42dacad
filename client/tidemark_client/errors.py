"""Define the error of a command and the exit codes.

A plain sentence comes first; expected, found and what to do follow where they help. Exit codes: 0
success, 1 not done (not found, rejected, records lost), 2 wrong usage or no cluster, 70
(EX_SOFTWARE of sysexits) a defect of the command itself.
"""

from collections.abc import Iterable

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DEFECT = 70
MAX_LISTED = 20


class CommandFailed(Exception):
    """An error that ends a command; `main` prints it and exits with `exit_code`."""

    def __init__(
        self,
        sentence: str = "",
        *,
        expected: str = "",
        found: str = "",
        to_do: str = "",
        exit_code: int = EXIT_FAILED,
    ) -> None:
        """Create the error; without a `sentence` it is made of `expected` and `found`."""
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
    """Return the error for a missing object.

    `known` are the names of existing ones; `found` is the answer of the cluster.
    """
    names = [str(each) for each in known]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    listed = f"{', '.join(names[:MAX_LISTED])}{more}" if names else "none"
    sentence = f"{kind} {str(name)!r} not found. {kind}s: {listed}"
    return CommandFailed(sentence, found=found, to_do=to_do)
