"""Not yet."""

import argparse

from tidemark_cli.output import Output

HELP = "not yet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


async def run(arguments: argparse.Namespace, output: Output) -> int:
    raise NotImplementedError
