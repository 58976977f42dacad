"""`tidemark groups [GROUP]`: consumer groups, who is in them, and how far they are behind."""

import argparse
import asyncio

import aiohttp
from rich.console import Console

from tidemark_cli.client import TidemarkClient
from tidemark_cli.failures import EXIT_OK, CommandFailed
from tidemark_cli.groups import GroupView, Place, merged, read_groups
from tidemark_cli.leader_lookup import NobodyAnswers
from tidemark_cli.metadata import UnreadableAnswer
from tidemark_cli.outcomes import BrokerRefused
from tidemark_cli.output import Output, table
from tidemark_cli.targets import find_brokers

HELP = "list consumer groups, or show one group's members and lag"
ANSWER_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", nargs="?", help="only this group, partition by partition")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    async with TidemarkClient(await find_brokers(arguments)) as client:
        try:
            groups, missing = await _groups(await client.brokers())
        except NobodyAnswers as error:
            raise CommandFailed(
                expected="a broker that answers",
                found=str(error),
                to_do="check the address, and that the brokers run",
            ) from error
        if arguments.group:
            groups = tuple(group for group in groups if group.group == arguments.group)
        ends = await _ends(client, groups)
    if missing:
        output.remark(f"groups may be missing: {'; '.join(missing)}; ask again in a moment")
    groups = tuple(group.with_ends(ends) for group in groups)
    if not arguments.group:
        output.result(groups, lambda console: _draw_all(console, groups))
    elif not groups:
        raise CommandFailed(
            expected=f"a group named {arguments.group!r}",
            found="no such group",
            to_do="check the name with `tidemark groups`",
        )
    else:
        output.result(groups[0], lambda console: _draw_one(console, groups[0]))
    return EXIT_OK


async def _groups(brokers: dict[int, str]) -> tuple[tuple[GroupView, ...], list[str]]:
    """All groups of all brokers, and why some of them may be missing."""
    missing: list[str] = []
    found: list[GroupView] = []
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:

        async def ask(broker_id: int, url: str) -> None:
            try:
                async with session.get(f"{url}/groups") as response:
                    response.raise_for_status()
                    groups, is_loading = read_groups(await response.json())
            except (aiohttp.ClientError, TimeoutError, OSError, UnreadableAnswer) as error:
                missing.append(f"broker {broker_id}: {error or type(error).__name__}")
                return
            found.extend(groups)
            if is_loading:
                missing.append(f"broker {broker_id} is still reading committed offsets")

        await asyncio.gather(*(ask(broker_id, url) for broker_id, url in sorted(brokers.items())))
    return merged(found), missing


async def _ends(client: TidemarkClient, groups: tuple[GroupView, ...]) -> dict[Place, int]:
    """High watermarks, of partitions whose leaders answer."""
    places = {(o.topic, o.partition): None for group in groups for o in group.offsets}
    ends: dict[Place, int] = {}

    async def ask(place: Place) -> None:
        try:
            ends[place] = (await client.offsets(*place)).high_watermark
        except (BrokerRefused, UnreadableAnswer):
            return

    await asyncio.gather(*map(ask, places))
    return ends


def _draw_all(console: Console, groups: tuple[GroupView, ...]) -> None:
    columns = ("group", "state", "members", "topics", "lag", "coordinator")
    rows = [
        (
            group.group,
            group.state,
            len(group.members),
            ",".join(group.topics) or "-",
            _number(group.lag),
            group.coordinator,
        )
        for group in groups
    ]
    console.print(table(columns, rows) if rows else "no consumer groups yet")


def _draw_one(console: Console, group: GroupView) -> None:
    console.print(
        f"{group.group}: {group.state}, {len(group.members)} members,"
        f" assignor {group.protocol or '-'}, coordinator {group.coordinator}",
        markup=False,
    )
    rows = [
        (
            offset.topic,
            offset.partition,
            offset.offset,
            _number(offset.end_offset),
            _number(offset.lag),
            offset.member or "-",
        )
        for offset in group.offsets
    ]
    columns = ("topic", "partition", "committed", "end", "lag", "member")
    console.print(table(columns, rows) if rows else "nothing committed yet")
    if group.members:
        console.print()
        members = [
            (
                member.client_id or "-",
                member.member_id,
                member.group_instance_id or "-",
                member.host,
                len(member.partitions),
            )
            for member in group.members
        ]
        console.print(table(("client", "member", "instance", "host", "partitions"), members))


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)
