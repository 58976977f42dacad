"""Configs given to `tidemark topics create|alter` have one spelling when they are stored."""

import argparse
from typing import Any

import pytest
from tidemark_cli.commands import topic_objects
from tidemark_cli.output import Output
from tidemark_client.errors import CommandFailed


def test_altered_configs_are_stored_in_one_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[dict[str, Any]] = []

    async def find(_: argparse.Namespace) -> dict[str, Any]:
        return {"metadata": {"name": "orders"}, "spec": {}}

    async def patch(_: argparse.Namespace, kind: str, name: str, change: dict[str, Any]) -> Any:
        stored.append(change)
        raise CommandFailed(expected="", found="", to_do="")

    monkeypatch.setattr(topic_objects, "_find", find)
    monkeypatch.setattr(topic_objects, "patch_object", patch)
    texts = ["retention.ms = +05 ", "cleanup.policy=compact, delete", "flush.ms=soon"]
    coroutine = topic_objects.alter(argparse.Namespace(configs=texts), Output(is_json=False))
    with pytest.raises(CommandFailed):
        coroutine.send(None)
    config = {"retention.ms": "5", "cleanup.policy": "compact,delete", "flush.ms": "soon"}
    assert stored == [{"spec": {"config": config}}]
