"""The kind cluster: made, looked at, given images, removed."""

import json
import os
import shlex
import shutil
import time
from pathlib import Path

from . import config, docker, load, node_image, node_recipe, tools
from .docker import Docker
from .run import Fail, Steps, answer, say

CONTROL_PLANE = f"{config.CLUSTER}-control-plane"
# kubectl would keep what it learns of the API below ~/.kube.
KUBE_CACHE = config.BUILD / "kube-cache"
AUDIT_LOG = "/var/log/kubernetes/audit/audit.log"


def nodes(found: Docker, also_stopped: bool = False) -> list[str]:
    command = ["ps", "--filter", f"label=io.x-k8s.kind.cluster={config.CLUSTER}"]
    command += ["--format", "{{.Names}}", *(["--all"] if also_stopped else [])]
    return sorted(found.must(*command).split())


def _kubectl(*args: str, limit: float = 10) -> tuple[bool, str]:
    kubectl = config.BIN / "kubectl"
    command = [str(kubectl), "--kubeconfig", str(config.KUBECONFIG), *args]
    return answer(command, limit, {**os.environ, "KUBECACHEDIR": str(KUBE_CACHE)})


def ready() -> tuple[int, str]:
    """How many nodes are Ready, and the rest in words."""
    ok, text = _kubectl("get", "nodes", "--output", "json", "--request-timeout=5s")
    if not ok:
        return 0, f"the API server does not answer: {text}"
    ready, rest = 0, []
    for node in json.loads(text)["items"]:
        states = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
        if states.get("Ready") == "True":
            ready += 1
        else:
            rest.append(node["metadata"]["name"])
    return ready, f"not Ready: {', '.join(rest)}" if rest else "all nodes are Ready"


def up() -> None:
    began = time.monotonic()
    found = docker.find()
    existing = nodes(found, also_stopped=True)
    image = _image_of(found) if existing else node_image.find(found)
    _tools(found, image)
    if existing and _as_it_is(found, existing):
        say(
            f"cluster: {config.CLUSTER} is already up, {config.NODES} nodes Ready;"
            f" export KUBECONFIG={config.KUBECONFIG}"
        )
        return
    if existing:
        say("cluster: it cannot be used as it is; removing it, to make it anew")
        _delete(found)
        image = node_image.find(found)
        _tools(found, image)
    _create(found, image)
    _await_ready()
    say(
        f"cluster: {config.CLUSTER} is up, {config.NODES} nodes Ready,"
        f" {time.monotonic() - began:.0f} s in all; export KUBECONFIG={config.KUBECONFIG}"
    )


def _image_of(found: Docker) -> str:
    names = nodes(found, also_stopped=True)
    image = found.must("inspect", "--format", "{{.Config.Image}}", names[0]).strip()
    if image not in (node_recipe.tag(), config.PUBLISHED_NODE):
        say(
            f"cluster: its nodes are of {image}, the recipe is now at {node_recipe.tag()};"
            " `make cluster-down cluster` makes it anew"
        )
    return image


def _tools(found: Docker, image: str) -> None:
    if tools.missing():
        say(f"tools: building {' and '.join(tools.missing())}")
        steps = Steps(config.cache() / "log" / "tools.log")
        tools.plan(steps)
        steps.run()
    for tool in tools.INSTALLED:
        tools.link(tool, tools.home(tool))
    built = node_recipe.go_programs() / "kube"
    ours = image == node_recipe.tag() and built.exists()
    tools.link("kubectl", built if ours else tools.kubectl(found, image))


def _given() -> Path:
    """What kind is given, in the cache: the nodes mount from there for as long as they live, which
    may be longer than this checkout does."""
    source = config.HERE / "given"
    kept = config.cache() / "given" / config.content_hash([source])
    shutil.copytree(source, kept, dirs_exist_ok=True)
    return kept


def _kind(found: Docker, *args: str, limit: float, label: str) -> None:
    # Never the user's: kind would write to $KUBECONFIG or ~/.kube/config.
    env = {**found.env, "KUBECONFIG": str(config.KUBECONFIG)}
    config.BUILD.mkdir(exist_ok=True)
    steps = Steps(config.cache() / "log" / "kind.log", f"  {label}")
    steps.command([str(tools.home("kind")), *args], limit, env, cwd=_given())


def _create(found: Docker, image: str) -> None:
    began = time.monotonic()
    config.KUBECONFIG.unlink(missing_ok=True)
    _kind(
        found, "create", "cluster", "--name", config.CLUSTER, "--image", image,
        "--config", "cluster.yaml", "--kubeconfig", str(config.KUBECONFIG),
        limit=config.CREATE, label="kind create cluster",
    )  # fmt: skip
    say(f"cluster: created in {time.monotonic() - began:.0f} s")


def _as_it_is(found: Docker, existing: list[str]) -> bool:
    """Whether the cluster there can be used, its stopped nodes started; False: make it anew."""
    stopped = sorted(set(existing) - set(nodes(found)))
    if stopped:
        say(f"cluster: starting its stopped nodes: {', '.join(stopped)}")
        ok, why = found.answer("start", *stopped, limit=60)
        if not ok:
            say(f"cluster: they do not start: {why[-200:]}")
            return False
    _kind(
        found, "export", "kubeconfig", "--name", config.CLUSTER,
        "--kubeconfig", str(config.KUBECONFIG), limit=30, label="kind export kubeconfig",
    )  # fmt: skip
    end = time.monotonic() + (60 if stopped else 20)
    while not _kubectl("get", "--raw", "/readyz", "--request-timeout=5s")[0]:
        if time.monotonic() > end:
            return False
        time.sleep(1)
    moved = _moved(found, existing)
    if moved:
        say(f"cluster: Docker was started again and gave other addresses to {', '.join(moved)}")
        return False
    _await_ready()
    return True


def _moved(found: Docker, names: list[str]) -> list[str]:
    """Nodes whose address is not the one that they registered with: they are Ready all the same,
    as kubelets find the API server by name, but no other node's pods are reached any more."""
    ok, text = _kubectl("get", "nodes", "--output", "json", "--request-timeout=5s")
    if not ok:
        return []  # what waits for them says why
    registered = {
        node["metadata"]["name"]: {each["address"] for each in node["status"].get("addresses", [])}
        for node in json.loads(text)["items"]
    }
    addresses = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return [
        name
        for name in names
        if registered.get(name)
        and found.must("inspect", "--format", addresses, name).strip() not in registered[name]
    ]


def _await_ready() -> None:
    began = time.monotonic()
    while True:
        count, words = ready()
        if count == config.NODES:
            break
        if time.monotonic() - began > config.NODES_READY:
            raise Fail(
                f"cluster: expected {config.NODES} Ready nodes within {config.NODES_READY} s,"
                f" found {count}; {words}. Look with `docker exec NODE journalctl -u kubelet`,"
                " or run `make cluster-down cluster`"
            )
        time.sleep(0.5)
    # Names and volumes are the cluster's too; some seconds after the nodes.
    left = max(5, config.NODES_READY - (time.monotonic() - began))
    for namespace in ("kube-system", "local-path-storage"):
        ok, text = _kubectl(
            "wait", "--for=condition=Available", "deployment", "--all",
            f"--namespace={namespace}", f"--timeout={left:.0f}s", limit=left + 10,
        )  # fmt: skip
        if not ok:
            raise Fail(
                f"cluster: expected the deployments of {namespace} to be available within"
                f" {config.NODES_READY} s, found: {text}. Look with `kubectl get pods -A`"
            )


def _delete(found: Docker) -> None:
    _kind(
        found, "delete", "cluster", "--name", config.CLUSTER,
        "--kubeconfig", str(config.KUBECONFIG),
        limit=config.DELETE, label="kind delete cluster",
    )  # fmt: skip
    left = nodes(found, also_stopped=True)
    if left:
        raise Fail(f"cluster: kind left {', '.join(left)}; try docker rm -f -v {' '.join(left)}")


def down() -> None:
    found, _ = docker.running()
    existing = nodes(found, also_stopped=True) if found else []
    if found and existing:
        if not tools.home("kind").exists():
            # Only the containers matter, and they need no building of kind.
            found.must("rm", "--force", "--volumes", *existing, limit=config.DELETE)
        else:
            _delete(found)
        say(f"cluster: removed {config.CLUSTER}")
    else:
        say("cluster: there was none")
    config.KUBECONFIG.unlink(missing_ok=True)
    say(docker.stop_what_we_started())


def usable() -> tuple[bool, str]:
    """Whether `up` would have a cluster at once; changes nothing."""
    found, text = docker.running()
    if found and len(nodes(found)) == config.NODES:
        return True, f"usable: the cluster {config.CLUSTER} is up"
    if not found:
        ok, why = docker.startable()
        if not ok:
            return False, f"not usable: no Docker answers ({text}); {why}"
    # A minute of Go, which is no reason to do without a cluster.
    first = f" ({' and '.join(tools.missing())} will be built first)" if tools.missing() else ""
    image, where = node_image.at_hand(found)
    if image:
        return True, f"usable: {image} is at hand, {where}{first}"
    if found:
        ok, why = node_image.registry_answers(found)
        if ok:
            return True, f"usable: a registry has {config.PUBLISHED_NODE.split('@')[0]}{first}"
        where += f", and no registry within {config.REGISTRY_ANSWERS} s ({why[:100]})"
    return False, f"not usable at once: {where} (`hack/kind/cluster image` makes one)"


def give(images: list[str]) -> None:
    found = _of_running_cluster()
    load.load(found, nodes(found), images)


def _of_running_cluster() -> Docker:
    found, text = docker.running()
    if not found or not nodes(found):
        why = "it is not up" if found else f"no Docker answers ({text})"
        raise Fail(f"cluster: expected {config.CLUSTER} to be up, but {why}; run `make cluster`")
    return found


def env() -> None:
    found, _ = docker.running()
    if found and found.host:
        say(f"export DOCKER_HOST={shlex.quote(found.host)}")
    say(f"export KUBECONFIG={shlex.quote(str(config.KUBECONFIG))}")
    say(f"export KUBECACHEDIR={shlex.quote(str(KUBE_CACHE))}")
    say(f"export PATH={shlex.quote(str(config.BIN))}:$PATH")


def audit_log() -> None:
    found = _of_running_cluster()
    os.environ.update(found.env)
    os.execvp("docker", ["docker", "exec", CONTROL_PLANE, "cat", AUDIT_LOG])
