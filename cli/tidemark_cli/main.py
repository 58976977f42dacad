"""The `tidemark` command: arguments in, one command run, its exit code out.

Each command lives in `commands/` and brings `add_arguments` and `run`.
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
