"""Print a completion script: `tidemark completion bash`, zsh or fish.

The script knows commands, options and their choices. It asks no cluster, so it completes no names
of topics or groups.
"""

import argparse
import sys
from collections.abc import Iterator

from tidemark_client.errors import EXIT_OK

from tidemark_cli.output import Output

PATHS = frozenset({"PATH", "FILE", "DIR"})  # metavars of arguments that name files
HELP = "print a script that completes commands and options in your shell"


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "shell",
        choices=("bash", "zsh", "fish"),
        metavar="SHELL",
        help="bash, zsh or fish; for this session: source <(tidemark completion bash)",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    import shtab

    from tidemark_cli.arguments import parser

    top = parser()
    for action in _all_actions(top):
        if action.metavar in PATHS:
            setattr(action, "complete", shtab.FILE)  # noqa: B010 - argparse does not know it
    sys.stdout.write(shtab.complete(top, shell=arguments.shell))
    return EXIT_OK


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _all_actions(command)
