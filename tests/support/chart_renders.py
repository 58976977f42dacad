"""Render the chart with the sets of values that people use, as files to read and to compare.

Helm is not everywhere, so the renders are in the tree (`hack/chart-renders` makes them): tests of
what a render holds need no helm. The digest in each file tells when it is older than the chart.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/tidemark"
RENDERS = ROOT / "tests/repository/chart_renders"
RELEASE_NAMESPACE = "tidemark-system"
KUBERNETES = "1.34.0"
_CHAOS = ("chaos.enabled=true", "chaos.namespaces={shop}")
VALUES: dict[str, tuple[str, ...]] = {
    "default": (),
    "all-namespaces": ("watchNamespaces={*}", "networkPolicies.namespaces={shop}"),
    "openshift": ("runAsUser=null", *_CHAOS),
    "pull-secrets": ("imagePullSecrets[0].name=registry", *_CHAOS),
    "no-cluster-roles": (
        "clusterRoles.reviews=false",
        "clusterRoles.create=false",
        "rackAwareness=false",
    ),
    "everything": (
        "watchNamespaces={shop,web}",
        "imagePullSecrets[0].name=registry",
        "credentialNamespaces={shop}",
        "sparkApplications=true",
        "web.actions=true",
        "monitoring.prometheusOperator=true",
        "networkPolicies.clients[0].namespaceSelector.matchLabels.clients=allowed",
        "networkPolicies.clientPorts={9094}",
        "networkPolicies.people[0].namespaceSelector.matchLabels.people=allowed",
        "networkPolicies.monitoring[0].namespaceSelector.matchLabels.monitoring=allowed",
        "priorityClassName=high",
        "podLabels.team=logs",
        "podAnnotations.note=text",
        "extraEnv[0].name=TZ",
        "extraEnv[0].value=UTC",
        "serviceAccount.name=tidemark",
        "serviceAccount.annotations.note=text",
        *_CHAOS,
    ),
}  # fmt: skip


def chart_digest() -> str:
    """Return a digest of what the renders depend on; rules and dashboards are left out of them."""
    files = sorted((CHART / "templates").iterdir())
    files += [CHART / "Chart.yaml", CHART / "values.yaml", CHART / "values.schema.json"]
    digest = hashlib.sha256()
    for path in [*files, Path(__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def load(name: str) -> list[dict[str, Any]]:
    """Return the objects of a render in the tree."""
    return list(yaml.safe_load_all((RENDERS / f"{name}.yaml").read_text()))


def digest_of(name: str) -> str:
    """Return the digest of the chart that a render in the tree was made of."""
    return (RENDERS / f"{name}.yaml").read_text().partition("\n")[0].rpartition(" ")[2]


def render(helm: str, values: tuple[str, ...]) -> str:
    """Return what helm makes of the chart, in an order of its own and without long files."""
    words = [word for each in values for word in ("--set", each)]
    out = subprocess.run(
        (
            *(helm, "template", "tidemark", str(CHART), "--namespace", RELEASE_NAMESPACE),
            *("--kube-version", KUBERNETES, *words),
        ),
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    items = [each for each in yaml.safe_load_all(out) if each]
    for item in items:
        if item["kind"] == "ConfigMap":
            item["data"] = dict.fromkeys(item["data"], "...")
        if item["kind"] == "PrometheusRule":
            item["spec"] = "..."
    items.sort(key=lambda each: (each["kind"], _namespace(each), each["metadata"]["name"]))
    return yaml.safe_dump_all(items, sort_keys=False, width=120)


def _namespace(item: dict[str, Any]) -> str:
    found: str = item["metadata"].get("namespace", "")
    return found


def renders(helm: str) -> dict[str, str]:
    """Return the text of each file."""
    head = f"# Made by hack/chart-renders of chart {chart_digest()}\n"
    return {name: head + render(helm, values) for name, values in VALUES.items()}


def find_helm() -> str:
    """Return the helm of the rig, or the one in PATH."""
    found = shutil.which("helm", path=str(ROOT / "build/bin")) or shutil.which("helm")
    if found is None:
        raise SystemExit("expected helm in build/bin (hack/kind/cluster up) or PATH, found none")
    return found


def main(arguments: list[str]) -> None:
    made = renders(find_helm())
    stale = []
    RENDERS.mkdir(exist_ok=True)
    for name, text in made.items():
        path = RENDERS / f"{name}.yaml"
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in arguments:
                path.write_text(text)
    if "--check" in arguments and stale:
        raise SystemExit(f"older than the chart: {', '.join(stale)}; run hack/chart-renders")


if __name__ == "__main__":
    main(sys.argv[1:])
