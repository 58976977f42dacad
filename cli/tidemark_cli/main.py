"""Run the `tidemark` command: parse arguments, run one command, exit with its code.

Each command lives in `commands/` and defines `add_arguments` and `run`.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    from tidemark_cli.arguments import parse_and_run

    if arguments is None:
        return parse_and_run(sys.argv[1:], is_own_process=True)
    return parse_and_run(arguments)


if __name__ == "__main__":
    sys.exit(main())
