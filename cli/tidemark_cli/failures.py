"""What a command says when it cannot do its work: expected, found, what to do, and an exit code.

Exit codes: 0 all is well, 1 a check failed (records lost, a broker refused), 2 wrong usage or
nothing to talk to, 70 (EX_SOFTWARE of sysexits) a defect of the command itself: no verdict.
"""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DEFECT = 70


class CommandFailed(Exception):
    """Ends a command; `main` prints it and exits with `exit_code`."""

    def __init__(
        self, *, expected: str, found: str, to_do: str, exit_code: int = EXIT_FAILED
    ) -> None:
        super().__init__(f"expected {expected}; found {found}; {to_do}")
        self.expected = expected
        self.found = found
        self.to_do = to_do
        self.exit_code = exit_code
