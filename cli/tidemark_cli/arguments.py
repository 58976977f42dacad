"""Define the command line's grammar: one sub-command per module of `commands/`.

Only the named command is imported: most commands need an HTTP client or Kafka's frames, whose
import takes longer than a short command runs. `-o` and the options that choose a cluster may stand
before the command, as with kubectl; options cannot be abbreviated.
"""

import argparse
import asyncio
import difflib
import importlib
import importlib.metadata
import inspect
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from tidemark_client.credentials import TOKEN_FILE
from tidemark_client.errors import EXIT_DEFECT, EXIT_USAGE, CommandFailed
from tidemark_client.local_brokers import LOCAL_CONTROLLER_URL
from tidemark_client.trust import CA_FILE_VARIABLE

from tidemark_cli.moments import is_relative
from tidemark_cli.output import Output

COMMANDS = (
    "dev", "apply", "topics", "groups", "status", "isr", "ui", "why", "events", "produce",
    "consume", "load", "verify", "demo", "chaos", "bench", "move", "drain", "elect", "audit",
    "completion",
)  # fmt: skip
WITHOUT_TARGET = frozenset({"dev", "demo", "chaos", "audit", "completion"})
OWN_OPTIONS = {"chaos": ("context", "namespace")}  # of `chaos report` alone


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


TARGET_OPTIONS = ("server", "context", "namespace", "pool", "ca_file", "token_file")
OPTIONS_WITH_TIME = frozenset({"--from", "--to"})
OPTIONS_WITH_VALUE = frozenset(
    {"-o", "--output", "-n", *(_flag(option) for option in TARGET_OPTIONS)}
)


class CommandParser(argparse.ArgumentParser):
    """Ends with `bad_use_exit_code` where the command line cannot be understood."""

    def __init__(self, *, bad_use_exit_code: int = EXIT_USAGE, **rest: Any) -> None:
        super().__init__(allow_abbrev=False, **rest)
        self._bad_use_exit_code = bad_use_exit_code

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(self._bad_use_exit_code, f"{self.prog}: error: {message}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reject an unknown choice as argparse does, and suggest the nearest name."""
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            what = action.metavar or action.dest
            raise argparse.ArgumentError(
                None,
                f"unknown {str(what).lower()} {value!r}{_near(value, names)}:"
                f" choose from {', '.join(names)}",
            )

    def options(self) -> list[str]:
        return list(self._option_string_actions)

    def chosen(self, parsed: argparse.Namespace) -> "CommandParser":
        """Return the parser of the command that was given, or of its action."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                command = action.choices.get(str(getattr(parsed, action.dest, "")))
                return command.chosen(parsed) if command is not None else self
        return self


def _near(value: object, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(value), list(names), n=1)
    return f", did you mean {near[0]}?" if near else ""


def parser(names: Sequence[str] = COMMANDS) -> CommandParser:
    top = CommandParser(
        prog="tidemark",
        description="Replicated, append-only logs on Kubernetes.",
        epilog="`tidemark help COMMAND` describes a command.",
    )
    top.add_argument(
        "--version", action="version", version=f"tidemark {importlib.metadata.version('tidemark')}"
    )
    _add_common_arguments(top)
    top.set_defaults(output="human", **dict.fromkeys(TARGET_OPTIONS))
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
        _add_common_arguments(command, has_target=name not in WITHOUT_TARGET)
        module.add_arguments(command)
    return top


def _add_common_arguments(command: argparse.ArgumentParser, *, has_target: bool = True) -> None:
    command.add_argument(
        "-o",
        "--output",
        choices=("human", "json"),
        default=argparse.SUPPRESS,
        help="output format (default: human)",
    )
    if has_target:
        add_target_arguments(command)


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Without defaults: they may stand before the command too."""
    parser.add_argument(
        "--server",
        action="append",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="a broker's or the controller's address, repeatable (default: $TIDEMARK_SERVER, "
        f"then local mode at {LOCAL_CONTROLLER_URL}, then the kubeconfig context)",
    )
    parser.add_argument(
        "--context",
        default=argparse.SUPPRESS,
        help="kubeconfig context (default: the current one)",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default=argparse.SUPPRESS,
        help="namespace on Kubernetes (default: the context's)",
    )
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"certificate authorities (PEM) to trust on https (default: ${CA_FILE_VARIABLE}, "
        "then those of the system)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="file with the token to send to brokers, read again for each request "
        f"(default: ${TOKEN_FILE})",
    )
    parser.add_argument(
        "--pool",
        default=argparse.SUPPRESS,
        help="the BrokerPool (default: that of the topic; default where it is new)",
    )


def _module_of(command: str) -> ModuleType:
    return importlib.import_module(f"tidemark_cli.commands.{command}")


def _place_of_command(arguments: Sequence[str]) -> int:
    """Return the index of the command, after the options that precede it."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 2 if arguments[place] in OPTIONS_WITH_VALUE else 1
    return place


def _with_relative_times(arguments: Sequence[str]) -> list[str]:
    """Join `--from -1h` to one word: argparse takes the second one for an option."""
    words: list[str] = []
    for word in arguments:
        if words and words[-1] in OPTIONS_WITH_TIME and is_relative(word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Like parse_args, but options may stand before and between the values of `produce`."""
    words = _with_relative_times(arguments)
    place = _place_of_command(words)
    if words[place : place + 1] == ["help"]:  # as kubectl and rpk have it
        words = [*words[:place], *words[place + 1 :], "--help"]
    elif words[place : place + 1] == ["version"]:
        words, place = ["--version"], 1
    if not words:
        words = ["--help"]
    named = words[place : place + 1]
    if "--version" in words[:place]:
        names: Sequence[str] = ()  # no command has to be loaded for that
    else:
        names = named if named and named[0] in COMMANDS else COMMANDS
    top = parser(names)
    if named and named[0] in COMMANDS and hasattr(_module_of(named[0]), "with_action"):
        words = [*words[: place + 1], *_module_of(named[0]).with_action(words[place + 1 :])]
    parsed, rest = top.parse_known_args(words)
    if rest and hasattr(parsed, "values") and not any(word.startswith("-") for word in rest):
        parsed.values = [*parsed.values, *rest]
    elif rest:
        unknown = next((word for word in rest if word.startswith("-")), "").partition("=")[0]
        chosen = top.chosen(parsed)
        near = _near(unknown, [*top.options(), *chosen.options()]) if unknown else ""
        known = f"see `{chosen.prog} --help`"
        top.error(f"unrecognized arguments: {' '.join(rest)}{near or ';'} {known}")
    own = OWN_OPTIONS.get(parsed.command, ())
    given = [
        option
        for option in TARGET_OPTIONS
        if getattr(parsed, option) is not None and option not in own
    ]
    if parsed.command in WITHOUT_TARGET and given:
        top.error(f"`tidemark {parsed.command}` has no {_flag(given[0])}")
    return parsed


def parse_and_run(arguments: Sequence[str], *, is_own_process: bool = False) -> int:
    """Parse the arguments, run the command and return its exit code.

    A command's `prepare_process`, where it has one, is called only in a process that runs nothing
    else.
    """
    parsed = parse(arguments)
    output = Output(is_json=parsed.output == "json")
    if parsed.ca_file is not None:  # of this process, and of those that it starts
        os.environ[CA_FILE_VARIABLE] = parsed.ca_file
    if parsed.token_file is not None:
        os.environ[TOKEN_FILE] = parsed.token_file
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
