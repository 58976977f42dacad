"""`tidemark groups`: `list` and `describe` consumer groups, `reset` their offsets, `delete` them.

`tidemark groups GROUP` describes it too. Groups are a pool's own.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import aiohttp
from rich.console import Console
from tidemark_client.client import TidemarkClient
from tidemark_client.cluster_status import KafkaAddress, read_broker_addresses
from tidemark_client.credentials import authorization
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed, not_found
from tidemark_client.leader_lookup import AccessDenied, NoResponse, UnknownTopic
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import BrokerError, OffsetRange
from tidemark_client.targets import find_brokers, find_target
from tidemark_client.trust import tls_context

from tidemark_cli.arguments import add_target_arguments
from tidemark_cli.group_offsets import Goal, OffsetChange, changes, read_goal
from tidemark_cli.groups import GroupView, Place, merged, read_groups
from tidemark_cli.kafka_requests import (
    KafkaFailed,
    commit,
    delete_group,
    find_coordinator,
    offset_at,
)
from tidemark_cli.moments import MOMENT_HELP
from tidemark_cli.output import Output, table
from tidemark_cli.terminal_text import visible

HELP = "list consumer groups; describe one, reset its offsets or delete it"
RESPONSE_SECONDS = 5.0
FORBIDDEN = 403
SENTENCES = {
    "list": "list the groups, same as `tidemark groups`",
    "describe": "show members and lag of a group, same as `tidemark groups GROUP`",
    "reset": "set the committed offsets of a group that has no members",
    "delete": "delete a group that has no members, with its committed offsets",
}


def with_action(words: Sequence[str]) -> list[str]:
    """Expand `groups GROUP` to `groups describe GROUP`."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] in ("-h", "--help"):
            return list(words)
        has_value = words[place] in ("-o", "--output", "-n", "--namespace", "--server", "--context")
        place += 2 if has_value or words[place] == "--pool" else 1
    if place >= len(words):
        return [*words, "list"]
    return (
        list(words) if words[place] in SENTENCES else [*words[:place], "describe", *words[place:]]
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, sentence in SENTENCES.items():
        action = actions.add_parser(
            name, help=sentence, description=sentence, argument_default=argparse.SUPPRESS
        )
        action.add_argument("-o", "--output", choices=("human", "json"))
        add_target_arguments(action)
        if name != "list":
            action.add_argument("group")
        if name == "reset":
            action.add_argument(
                "--to",
                required=True,
                metavar="earliest|latest|OFFSET|TIME",
                help=f"new position; a time: {MOMENT_HELP}",
            )
            action.add_argument(
                "--topic",
                action="append",
                dest="topics",
                metavar="TOPIC[:PARTITION]",
                help="only this topic, repeatable (default: all with a committed offset)",
            )
            action.add_argument(
                "--dry-run", action="store_true", help="show the new offsets without a change"
            )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    pools = await _pools(arguments)
    if arguments.action == "list":
        return await _list(arguments, output, pools)
    if len(pools) > 1:
        raise CommandFailed(
            f"Groups belong to a pool, and there are several: {', '.join(pools)}",
            to_do="choose one with --pool",
            exit_code=EXIT_USAGE,
        )
    actions: dict[str, Action] = {"describe": _describe, "reset": _reset, "delete": _delete}
    async with _client(arguments) as client:
        return await actions[arguments.action](client, arguments, output)


async def _pools(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the pools that the command addresses; none where only brokers were named."""
    target = await find_target(arguments)
    return target.status.pools if arguments.pool is None else (arguments.pool,)


@contextlib.asynccontextmanager
async def _client(arguments: argparse.Namespace) -> AsyncIterator[TidemarkClient]:
    async with TidemarkClient(await find_brokers(arguments)) as client:
        try:
            yield client
        except NoResponse as error:
            raise CommandFailed(
                "No broker responds.",
                expected="a broker that responds",
                found=str(error),
                to_do="check the address and whether the brokers run",
            ) from error
        except KafkaFailed as error:
            raise CommandFailed(f"{str(error)[:1].upper()}{str(error)[1:]}") from error


Action = Callable[[TidemarkClient, argparse.Namespace, Output], Awaitable[int]]


async def _list(arguments: argparse.Namespace, output: Output, pools: tuple[str, ...]) -> int:
    groups: list[GroupView] = []
    for pool in pools or (None,):
        arguments.pool = pool
        async with _client(arguments) as client:
            found = await _with_ends(client, await _all(client, output))
        groups += [replace(group, pool=pool or "") for group in found]
    output.result(groups, lambda console: _draw_all(console, groups, has_pools=len(pools) > 1))
    return EXIT_OK


async def _describe(client: TidemarkClient, arguments: argparse.Namespace, output: Output) -> int:
    group = await _find(client, arguments.group, output)
    (group,) = await _with_ends(client, (group,))
    output.result(group, lambda console: _draw_one(console, group))
    return EXIT_OK


async def _delete(client: TidemarkClient, arguments: argparse.Namespace, output: Output) -> int:
    group = await _find(client, arguments.group, output)
    _check_empty(group)
    await delete_group(await _coordinator(client, group.group), group.group)
    output.result(
        {"deleted": group.group},
        lambda console: console.print(f"group {group.group} deleted", markup=False),
    )
    return EXIT_OK


async def _reset(client: TidemarkClient, arguments: argparse.Namespace, output: Output) -> int:
    goal, options = read_goal(arguments.to, int(time.time() * 1000)), vars(arguments)
    named = options.get("topics", ())
    groups = await _all(client, output)
    group = next((each for each in groups if each.group == arguments.group), None)
    if group is None and not named:  # a new group has nothing that could be set back
        raise not_found("Group", arguments.group, [each.group for each in groups])
    if group is not None:
        _check_empty(group)
    committed = {(o.topic, o.partition): o.offset for o in group.offsets} if group else {}
    places = [place for text in named for place in await _places(client, text)]
    planned = await _planned(client, places or list(committed), committed, goal)
    if "dry_run" not in options and planned:
        wanted = {(each.topic, each.partition): each.after for each in planned}
        await commit(await _coordinator(client, arguments.group), arguments.group, wanted)
    output.result(
        {"group": arguments.group, "dryRun": "dry_run" in options, "offsets": planned},
        lambda console: _draw_reset(console, planned, is_dry="dry_run" in options),
    )
    return EXIT_OK


async def _planned(
    client: TidemarkClient, places: list[Place], committed: dict[Place, int], goal: Goal
) -> list[OffsetChange]:
    ranges: dict[Place, OffsetRange] = {}
    at_time: dict[Place, int] = {}
    addresses = read_broker_addresses(await client.lookup.ask("/brokers"))
    for place in places:
        try:
            ranges[place] = await client.offsets(*place)
        except (BrokerError, UnreadableResponse) as error:
            raise CommandFailed(
                f"Offsets of {place[0]}-{place[1]} cannot be read: {error}",
                to_do="nothing was changed; see: tidemark status",
            ) from error
        if goal.time_ms is not None:
            view = client.lookup.metadata.partition(*place)
            leader = addresses.get(view.leader) if view is not None else None
            if leader is None:
                raise CommandFailed(f"{place[0]}-{place[1]} has no leader; nothing was changed.")
            at_time[place] = await offset_at(leader, place, goal.time_ms)
    return changes(places, committed, ranges, goal, at_time)


async def _places(client: TidemarkClient, text: str) -> list[Place]:
    """Return the partitions that `TOPIC` or `TOPIC:PARTITION` names."""
    topic, colon, number = text.partition(":")
    try:
        count = len((await client.topic(topic)).partitions)
    except UnknownTopic as error:
        raise not_found("Topic", topic, await client.topics()) from error
    if not colon:
        return [(topic, partition) for partition in range(count)]
    if not number.isdecimal() or int(number) >= count:
        raise not_found("Partition", number, range(count))
    return [(topic, int(number))]


async def _coordinator(client: TidemarkClient, group: str) -> KafkaAddress:
    addresses = read_broker_addresses(await client.lookup.ask("/brokers"))
    failed = KafkaFailed("no broker has a Kafka port")
    for address in addresses.values():
        try:
            return await find_coordinator(address, group)
        except KafkaFailed as error:
            failed = error
    raise failed


def _check_empty(group: GroupView) -> None:
    if group.members:
        raise CommandFailed(
            f"Group {group.group!r} has {len(group.members)} members.",
            to_do="stop them first: members would overwrite the offsets",
            exit_code=EXIT_USAGE,
        )


async def _all(client: TidemarkClient, output: Output) -> tuple[GroupView, ...]:
    groups, missing = await _groups(await client.brokers())
    if missing:
        output.remark(f"groups may be missing: {'; '.join(missing)}; try again in a few seconds")
    return groups


async def _find(client: TidemarkClient, name: str, output: Output) -> GroupView:
    groups = await _all(client, output)
    found = next((group for group in groups if group.group == name), None)
    if found is None:
        raise not_found("Group", name, [group.group for group in groups])
    return found


async def _with_ends(
    client: TidemarkClient, groups: tuple[GroupView, ...]
) -> tuple[GroupView, ...]:
    ends = await _ends(client, groups)
    return tuple(group.with_ends(ends) for group in groups)


async def _groups(brokers: dict[int, str]) -> tuple[tuple[GroupView, ...], list[str]]:
    """Return all groups of all brokers, and the reasons why some may be missing."""
    missing: list[str] = []
    found: list[GroupView] = []
    timeout = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
    async with aiohttp.ClientSession(
        timeout=timeout, trust_env=False, headers=authorization()
    ) as session:

        async def ask(broker_id: int, url: str) -> None:
            context = tls_context(url) or True
            try:
                async with session.get(f"{url}/groups?of=broker", ssl=context) as response:
                    if response.status == FORBIDDEN:
                        raise AccessDenied(str((await response.json(content_type=None))["detail"]))
                    response.raise_for_status()
                    groups, is_loading = read_groups(await response.json())
            except (aiohttp.ClientError, TimeoutError, OSError, UnreadableResponse) as error:
                missing.append(f"broker {broker_id}: {error or type(error).__name__}")
                return
            found.extend(groups)
            if is_loading:
                missing.append(f"broker {broker_id} is still loading committed offsets")

        await asyncio.gather(*(ask(broker_id, url) for broker_id, url in sorted(brokers.items())))
    return merged(found), missing


async def _ends(client: TidemarkClient, groups: tuple[GroupView, ...]) -> dict[Place, int]:
    """High watermarks, of partitions whose leaders answer."""
    places = {(o.topic, o.partition): None for group in groups for o in group.offsets}
    ends: dict[Place, int] = {}

    async def ask(place: Place) -> None:
        try:
            ends[place] = (await client.offsets(*place)).high_watermark
        except (BrokerError, UnreadableResponse):
            return

    await asyncio.gather(*map(ask, places))
    return ends


def _draw_reset(console: Console, planned: list[OffsetChange], *, is_dry: bool) -> None:
    rows = [
        (each.topic, each.partition, "-" if each.before is None else each.before, each.after)
        for each in planned
    ]
    columns = ("topic", "partition", "before", "dry run" if is_dry else "now")
    console.print(
        table(columns, rows) if rows else "no committed offsets: choose topics with --topic"
    )


def _draw_all(console: Console, groups: Sequence[GroupView], *, has_pools: bool) -> None:
    pool_column = ("pool",) if has_pools else ()
    columns = ("group", *pool_column, "state", "members", "topics", "lag", "coordinator")
    rows = [
        (
            group.group,
            *((group.pool,) if has_pools else ()),
            group.state,
            len(group.members),
            ",".join(group.topics) or "-",
            _number(group.lag),
            group.coordinator,
        )
        for group in groups
    ]
    console.print(table(columns, rows) if rows else "no consumer groups")


def _draw_one(console: Console, group: GroupView) -> None:
    console.print(
        visible(
            f"{group.group}: {group.state}, {len(group.members)} members,"
            f" assignor {group.protocol or '-'}, coordinator {group.coordinator}"
        ),
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
    console.print(table(columns, rows) if rows else "no committed offsets")
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
