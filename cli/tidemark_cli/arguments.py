"""The command line's grammar: one sub-command per module of `commands/`.

Only the command that is named is imported: most bring an HTTP client or Kafka's frames, which takes
longer than a short command runs.
"""

import argparse
import asyncio
import importlib
import inspect
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from tidemark_cli.failures import EXIT_DEFECT, EXIT_USAGE, CommandFailed
from tidemark_cli.output import Output

COMMANDS = (
    "dev", "apply", "topics", "groups", "status", "produce", "consume", "load", "verify", "demo",
    "bench", "move", "drain", "elect", "audit",
)  # fmt: skip
WITHOUT_TARGET = frozenset({"dev", "demo", "audit"})


class CommandParser(argparse.ArgumentParser):
    """Ends with `bad_use_exit_code` where the command line cannot be understood."""

    def __init__(self, *, bad_use_exit_code: int = EXIT_USAGE, **rest: Any) -> None:
        super().__init__(**rest)
        self._bad_use_exit_code = bad_use_exit_code

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(self._bad_use_exit_code, f"{self.prog}: error: {message}\n")


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tidemark", description="Replicated, append-only logs on Kubernetes."
    )
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    for name in names:
        module = _module_of(name)
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
            from tidemark_cli.targets import add_target_arguments

            add_target_arguments(command)
        module.add_arguments(command)
    return top


def _module_of(command: str) -> ModuleType:
    return importlib.import_module(f"tidemark_cli.commands.{command}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Like parse_args, but options may stand before and between the values of `produce`."""
    top = parser(arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS)
    parsed, rest = top.parse_known_args(arguments)
    if rest and hasattr(parsed, "values") and not any(word.startswith("-") for word in rest):
        parsed.values = [*parsed.values, *rest]
    elif rest:
        known = f"`tidemark {parsed.command} --help` lists those that there are"
        top.error(f"unrecognized arguments: {' '.join(rest)}; {known}")
    return parsed


def parse_and_run(arguments: Sequence[str], *, is_own_process: bool = False) -> int:
    """A command's `prepare_process`, where it has one, is for a process that runs nothing else."""
    parsed = parse(arguments)
    output = Output(is_json=parsed.output == "json")
    try:
        module = _module_of(parsed.command)
        if is_own_process and hasattr(module, "prepare_process"):
            module.prepare_process(parsed)
        run = module.run
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
    except Exception:
        traceback.print_exc()
        sys.stderr.write("tidemark: a defect, not a verdict: please report what stands above\n")
        return EXIT_DEFECT
