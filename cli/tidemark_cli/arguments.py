"""The command line's grammar: one sub-command per module of `commands/`."""

import argparse
import asyncio
import inspect
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from tidemark_cli.commands import (
    apply,
    audit,
    bench,
    consume,
    demo,
    dev,
    drain,
    elect,
    groups,
    load,
    move,
    produce,
    status,
    topics,
    verify,
)
from tidemark_cli.failures import EXIT_USAGE, CommandFailed
from tidemark_cli.output import Output
from tidemark_cli.targets import add_target_arguments

COMMANDS: dict[str, ModuleType] = {
    "dev": dev,
    "apply": apply,
    "topics": topics,
    "groups": groups,
    "status": status,
    "produce": produce,
    "consume": consume,
    "load": load,
    "verify": verify,
    "demo": demo,
    "bench": bench,
    "move": move,
    "drain": drain,
    "elect": elect,
    "audit": audit,
}
WITHOUT_TARGET = frozenset({"dev", "demo", "audit"})


class CommandParser(argparse.ArgumentParser):
    """Ends with `bad_use_exit_code` where the command line cannot be understood."""

    def __init__(self, *, bad_use_exit_code: int = EXIT_USAGE, **rest: Any) -> None:
        super().__init__(**rest)
        self._bad_use_exit_code = bad_use_exit_code

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(self._bad_use_exit_code, f"{self.prog}: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tidemark", description="Replicated, append-only logs on Kubernetes."
    )
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    for name, module in COMMANDS.items():
        sentence = module.HELP
        command = commands.add_parser(
            name,
            help=sentence,
            description=sentence,
            bad_use_exit_code=getattr(module, "EXIT_BAD_USE", EXIT_USAGE),
        )
        command.add_argument(
            "-o",
            "--output",
            choices=("human", "json"),
            default="human",
            help="how results are written (default: human)",
        )
        if name not in WITHOUT_TARGET:
            add_target_arguments(command)
        module.add_arguments(command)
    return top


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Like parse_args, but options may stand before and between the values of `produce`."""
    top = parser()
    parsed, rest = top.parse_known_args(arguments)
    if rest and hasattr(parsed, "values") and not any(word.startswith("-") for word in rest):
        parsed.values = [*parsed.values, *rest]
    elif rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    return parsed


def parse_and_run(arguments: Sequence[str]) -> int:
    parsed = parse(arguments)
    output = Output(is_json=parsed.output == "json")
    try:
        run = COMMANDS[parsed.command].run
        if not inspect.iscoroutinefunction(run):  # brings an event loop of its own
            return int(run(parsed, output))
        return int(asyncio.run(run(parsed, output)))
    except CommandFailed as failed:
        output.failure(failed)
        return failed.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: no second complaint at exit
        return EXIT_USAGE
