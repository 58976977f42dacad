"""How the node image is made. This file is hashed into the image's tag: what is only about finding
one or keeping it is in node_image.py."""

import os
import shutil
from functools import partial
from pathlib import Path

from . import apt, config, tools
from .docker import Docker
from .run import Steps, must

SOURCES = config.HERE / "node"
KUBE_NAMES = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
    "kubectl", "kubeadm", "etcd", "crictl", "podroutes",
)  # fmt: skip
GO_PROGRAMS = {
    "kube": ("kube", "."),
    "pause": ("pause", "."),
    "coredns": ("coredns", "."),
    "local-path-provisioner": ("local-path", "github.com/rancher/local-path-provisioner"),
}
UPSTREAM_BASE = "debian:bookworm-slim"
MINOR = config.KUBERNETES.split(".")[1]
VERSION_FLAGS = " ".join(
    f"-X {package}.{name}={value}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for name, value in (
        ("gitVersion", config.KUBERNETES),
        ("gitMajor", "1"),
        ("gitMinor", MINOR),
        ("gitTreeState", "clean"),
        ("buildDate", "2026-01-01T00:00:00Z"),
    )
)
LDFLAGS = f"-s -w {VERSION_FLAGS}"
# Debian's usrmerge, which nothing needs once it has run, brings all of Perl: 45 MB of 117.
NO_PERL = 'apt-get --yes purge perl usrmerge "perl-modules-*" "libperl5*" "libgdbm*"'
BASE_OPTIONS = (
    "--variant=apt",
    "--include=usr-is-merged",
    f'--customize-hook=chroot "$1" {NO_PERL}',
    *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")),
)
BASE = f"tidemark/debian:bookworm-{config.content_hash([], *BASE_OPTIONS)}"


def tag() -> str:
    # This file is part of the recipe as much as what it works on.
    parts = [SOURCES, Path(__file__)]
    return f"tidemark/kind-node:{config.content_hash(parts, config.KUBERNETES, config.machine())}"


def go_programs() -> Path:
    """Where the Go programs are kept; they change less often than the image does."""
    digest = config.content_hash([SOURCES / "go"], LDFLAGS, config.machine())
    return config.cache() / "go" / digest


def base(steps: Steps, docker: Docker) -> None:
    """Debian under a name of ours: as published where a registry answers, else made here."""
    ok = docker.has(UPSTREAM_BASE)
    if not ok:
        ask = ("manifest", "inspect", UPSTREAM_BASE)
        ok = docker.answer(*ask, limit=config.REGISTRY_ANSWERS)[0]
        if ok:
            steps.command(["docker", "pull", UPSTREAM_BASE], config.PULL, docker.env)
    if ok:
        docker.must("tag", UPSTREAM_BASE, BASE)
        return
    if not shutil.which("mmdebstrap"):
        apt.install("mmdebstrap")
    # Of Debian's suites, as apt here may point elsewhere or at another release.
    make = ["mmdebstrap", "--quiet", *BASE_OPTIONS, "bookworm", "-"]
    steps.pipe(make, ["docker", "import", "-", BASE], config.DOCKER_STEP, docker.env)


class Recipe:
    def __init__(self, steps: Steps, docker: Docker) -> None:
        self.steps, self.docker = steps, docker
        self.out = go_programs()
        self.work = config.cache() / "work"

    def plan_programs(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        for name in GO_PROGRAMS:
            if not (self.out / name).exists():
                self.steps.add(f"{name} (Go)", partial(self.go_build, name))

    def plan_images(self) -> None:
        if not self.docker.has(BASE):
            self.steps.add("Debian base", lambda: base(self.steps, self.docker))
        self.steps.add("pause image", self.pause)
        self.steps.add("system image (Debian packages)", self.system)
        self.steps.add("bare node (Debian packages)", self.bare_node)
        self.steps.add("unpacking the images into the node", self.bake)
        self.steps.add("node image", self.node)

    def go_build(self, name: str) -> None:
        directory, package = GO_PROGRAMS[name]
        scratch = self.out / f".{name}"
        # -v names each package as it is compiled: the log's length is the progress.
        flags = ["-v", "-buildvcs=false", "-trimpath", "-ldflags", LDFLAGS, "-o", str(scratch)]
        self.steps.command(
            [tools.go(), "build", *flags, package],
            config.GO_BUILD, tools.go_env(), SOURCES / "go" / directory,
        )  # fmt: skip
        scratch.rename(self.out / name)

    def _context(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "bin").mkdir(parents=True)
        shutil.copy(SOURCES / "Dockerfile", self.work)
        shutil.copytree(SOURCES / "rootfs", self.work / "rootfs")
        for name in GO_PROGRAMS:
            os.link(self.out / name, self.work / ("pause" if name == "pause" else f"bin/{name}"))
        for name in KUBE_NAMES:
            (self.work / "bin" / name).symlink_to("kube")

    def _target(self, target: str, *tags: str) -> None:
        # Our own Docker gives containers no network of their own: apt needs the host's.
        command = ["docker", "build", "--network", "host", "--target", target]
        command += ["--build-arg", f"BASE={BASE}", "--build-arg", f"VERSION={config.KUBERNETES}"]
        for name in tags:
            command += ["--tag", name]
        self.steps.command([*command, str(self.work)], config.DOCKER_STEP, self.docker.env)

    def _names(self) -> tuple[str, list[str]]:
        """kubeadm's own names for the pause image and for all the others."""
        kubeadm = [str(self.work / "bin" / "kubeadm"), "config", "images", "list"]
        images = must([*kubeadm, "--kubernetes-version", config.KUBERNETES], 60).split()
        (pause,) = [image for image in images if "/pause:" in image]
        return pause, [f"tidemark/kind-system:{config.KUBERNETES}", *set(images) - {pause}]

    def pause(self) -> None:
        self._context()
        self._target("pause", self._names()[0])

    def system(self) -> None:
        self._target("system", *self._names()[1])

    def bare_node(self) -> None:
        self._target("bare-node", "tidemark/kind-node:bare")

    def bake(self) -> None:
        pause, system = self._names()
        script = (SOURCES / "bake-images").read_text()
        # Docker would also log the tar, which takes longer than all the rest.
        run = ["docker", "run", "--rm", "--interactive", "--privileged", "--network", "none"]
        run += ["--log-driver", "none", "--volume", "/var/lib/containerd", "--entrypoint", "sh"]
        run += ["tidemark/kind-node:bare", "-c", script]
        save = ["docker", "save", pause, *system]
        with (self.work / "store.tar").open("wb") as store:
            self.steps.pipe(save, run, config.DOCKER_STEP, self.docker.env, store)

    def node(self) -> None:
        self._target("node", tag())
        shutil.rmtree(self.work)
        self.docker.answer("rmi", "tidemark/kind-node:bare")
