"""`tidemark chaos report`: the report of a ChaosExperiment object, as files."""

import asyncio
import json
from pathlib import Path
from typing import Any, Self

import pytest
from tidemark_chaos.report.config_map import report_config_map
from tidemark_chaos.report.results import chaos_report
from tidemark_chaos.runner import Observations
from tidemark_chaos.spec import parse_experiment
from tidemark_cli.arguments import parse_and_run
from tidemark_client.kubernetes_objects import KubernetesObjects

EXPERIMENT = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: one}
spec: {rounds: 1, faults: [{kind: kill}]}
"""


class Objects:
    """ConfigMaps of a namespace."""

    namespace = "shop"

    def __init__(self, maps: dict[str, Any]) -> None:
        self._maps = maps

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def config_map(self, name: str) -> Any:
        return self._maps.get(name)


def serve(monkeypatch: pytest.MonkeyPatch, maps: dict[str, Any]) -> list[Any]:
    asked: list[Any] = []

    async def connect(context: str | None, namespace: str | None) -> Objects:
        await asyncio.sleep(0)
        asked.append((context, namespace))
        return Objects(maps)

    monkeypatch.setattr(KubernetesObjects, "connect", connect)
    return asked


def test_the_report_of_an_object_is_written_as_three_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Observations(1_000.0, 2_000.0, aborted="orders-0 had 0 replicas in sync")
    report = chaos_report(parse_experiment(EXPERIMENT), 1, seen, command="again", version="1")
    asked = serve(monkeypatch, {"one-report": report_config_map(report, {})})
    out = tmp_path / "new" / "out"
    assert parse_and_run(["chaos", "report", "one", "-n", "shop", "--out", str(out)]) == 1
    assert asked == [(None, "shop")]
    assert json.loads((out / "report.json").read_text())["name"] == "one"
    assert {each.name for each in out.iterdir()} == {"report.json", "report.html", "junit.xml"}
    assert report.sentence in " ".join(capsys.readouterr().out.split())


def test_an_object_without_a_report_is_not_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, {})
    assert parse_and_run(["chaos", "report", "one"]) == 1
    assert "ChaosExperiment 'one' has no report in namespace shop" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["report"], "expected the name of a ChaosExperiment"),
        (["run", "one"], "expected neither NAME nor -n and --context with run, found one"),
        (["check", "-n", "shop"], "expected neither NAME nor -n and --context with check"),
    ],
)
def test_name_and_namespace_belong_to_report(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse_and_run(["chaos", *words]) == 2
    assert sentence in capsys.readouterr().err
