"""Brings what the tests need to run a Kubernetes, from Debian's packages; nothing of it is installed.

    ~/.cache/scaler-test-kubernetes/
        bin/       kube-apiserver, kube-scheduler, kube-controller-manager, built here from Debian's source package;
                   etcd and kubectl from their packages
        build/     Go, the source and what it was compiled to; removed when all is built

Debian has no package of the servers. Its source package has all that they are built of; what Go needs beside
it, one generated file, is generated as `make` there would. It takes an hour of one processor's time, and
4 GB while it lasts. What was done before is not done again.
"""

import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the package `support`

from support import debian

CACHE = debian.CACHES / "scaler-test-kubernetes"
BIN = CACHE / "bin"
BUILD = CACHE / "build"

SERVERS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
PACKAGED = ("etcd", "kubectl")
PACKAGES = ("etcd-server", "golang-1.19-go", "golang-1.19-src", "kubernetes-client")
VERSION = "v1.20.2"

#: types of these are described to clients, as the Makefile of the source chooses them
DESCRIBED = r"""
grep -rlE --include='*.go' '^// \+k8s:openapi-gen=' pkg cmd vendor/k8s.io/*/ |
grep -vE '^vendor/k8s.io/(code-generator|sample-[a-z-]+|kube-openapi|gengo)/' |
xargs -n1 dirname | sed 's,//*,/,g; s,^,k8s.io/kubernetes/,' | LC_ALL=C sort -u | paste -sd,
"""


def missing() -> str | None:
    """Why there can be no Kubernetes here, in a line."""
    absent = [name for name in (*SERVERS, *PACKAGED) if not (BIN / name).exists()]
    return f"{', '.join(absent)} missing in {BIN}: `make test-kubernetes` builds them" if absent else None


def main() -> None:
    """See the module."""
    if missing() is None:
        return
    for name in ("apt-get", "dpkg-source", "ip", "openssl", "unshare"):
        if shutil.which(name) is None:
            sys.exit(f"install.py: {name} is missing; this needs Debian, with dpkg-dev, iproute2, openssl, util-linux")
    BIN.mkdir(parents=True, exist_ok=True)
    BUILD.mkdir(exist_ok=True)
    began = time.monotonic()
    fetch()
    for name in SERVERS:
        if not (BIN / name).exists():
            generate()
            say(f"compiles {name}")
            build(f"./cmd/{name}")
    shutil.rmtree(BUILD)
    say(f"all is in {BIN}, after {(time.monotonic() - began) / 60:.0f} minutes")


def fetch() -> None:
    """Packages and source."""
    root, source = BUILD / "root", BUILD / "src" / "k8s.io" / "kubernetes"
    if source.exists():
        return
    say("fetches packages of Debian and the source of Kubernetes (130 MB)")
    fetched = debian.fetch(PACKAGES, BUILD, "kubernetes")
    for name in PACKAGED:
        shutil.copy2(root / "usr" / "bin" / name, BIN / name)
    source.parent.mkdir(parents=True, exist_ok=True)
    (described,) = fetched.glob("kubernetes_*.dsc")
    unpacked = source.with_name("unpacked")
    shutil.rmtree(unpacked, ignore_errors=True)
    run("dpkg-source", "--no-check", "-x", str(described), str(unpacked))
    unpacked.rename(source)


def generate() -> None:
    """The one file that the source package leaves to be generated: what the server says of its types."""
    source = BUILD / "src" / "k8s.io" / "kubernetes"
    if (source / "pkg" / "generated" / "openapi" / "zz_generated.openapi.go").exists():
        return
    say("generates the descriptions of types")
    build("./vendor/k8s.io/kube-openapi/cmd/openapi-gen", BUILD)
    chosen = run("sh", "-c", DESCRIBED, cwd=source, env=go()).strip()
    run(
        str(BUILD / "openapi-gen"), "-i", chosen, "-p", "k8s.io/kubernetes/pkg/generated/openapi",
        "-O", "zz_generated.openapi", "-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
        "-r", str(BUILD / "violations.report"), cwd=source, env=go(),
    )  # fmt: skip


def build(what: str, to: Path = BIN) -> None:
    """Compile a program."""
    said = " ".join(
        f"-X k8s.io/kubernetes/vendor/k8s.io/{package}/version.{name}={value}"
        for package in ("component-base", "client-go/pkg")
        for name, value in (("gitVersion", VERSION), ("gitMajor", "1"), ("gitMinor", "20"))
    )
    run(
        "nice", "-n", "5", "go", "build", "-p", "2", "-tags", "providerless", "-ldflags", f"-s -w {said}",
        "-o", f"{to}/", what, cwd=BUILD / "src" / "k8s.io" / "kubernetes", env=go(),
    )  # fmt: skip


def go() -> dict[str, str]:
    """The environment in which Go of the package runs from where it was unpacked, and asks nobody for anything."""
    root = BUILD / "root" / "usr" / "lib" / "go-1.19"
    return {
        "HOME": str(BUILD), "PATH": f"{root}/bin:/usr/bin:/bin", "GOROOT": str(root), "GOPATH": str(BUILD),
        "GOCACHE": str(BUILD / "compiled"), "GO111MODULE": "off", "CGO_ENABLED": "0",
    }  # fmt: skip


def run(*command: str, cwd: Path = BUILD, env: dict[str, str] | None = None) -> str:
    """What a command prints; ends the program with its last words if it fails."""
    return debian.run(*command, cwd=cwd, env=env)


def say(text: str) -> None:
    """To whoever waits."""
    print(f"kubernetes: {text}", flush=True)


if __name__ == "__main__":
    main()
