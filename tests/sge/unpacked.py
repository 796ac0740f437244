"""Grid Engine from Debian's packages, unpacked and not installed: other systems' commands have the same names.

    ~/.cache/scaler-test-sge/
        bin/ARCH    its programs
        lib/ARCH    the libraries that they look for there
        util/       what its scripts and its configuration are made of

Debian's build looks in /usr/lib/gridengine alone for the library that writes its files; here it is told to look
where it looks for all others. As a program, this fetches what is missing.
"""

import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the package `support`

from support import debian

CACHE = debian.CACHES / "scaler-test-sge"
PACKAGES = (
    "gridengine-master", "gridengine-exec", "gridengine-client", "gridengine-common",
    "libdb5.3", "libhwloc15", "libjemalloc2", "libmunge2", "libtirpc3",
)  # fmt: skip
#: how the programs find the library
FIXED, ANYWHERE = b"/usr/lib/gridengine/%s%s\0", b"%s%s\0"


def missing() -> str | None:
    """Why there can be no Grid Engine here, in a line."""
    return None if (CACHE / "bin").exists() else f"Grid Engine is not in {CACHE}: `make test-sge` fetches it"


def main() -> None:
    """See the module."""
    if missing() is None:
        return
    for name in ("apt-get", "dpkg"):
        if shutil.which(name) is None:
            sys.exit(f"{sys.argv[0]}: {name} is missing: this needs Debian")
    began = time.monotonic()
    print("sge: fetches packages of Debian (19 MB)", flush=True)
    work = CACHE / "work"
    shutil.rmtree(CACHE, ignore_errors=True)
    work.mkdir(parents=True)
    debian.fetch(PACKAGES, work)
    root, made = work / "root", work / "made"
    shared = root / "usr" / "share" / "gridengine"
    arch = debian.run("sh", str(shared / "util" / "arch"), cwd=work).strip()
    programs, libraries = made / "bin" / arch, made / "lib" / arch
    libraries.mkdir(parents=True)
    for path in [*(root / "usr" / "lib").glob("*/lib*.so*"), *(root / "lib").glob("*/lib*.so*")]:
        shutil.copy2(path, libraries)
    shutil.copytree(root / "usr" / "lib" / "gridengine", programs, symlinks=True)
    for path in programs.iterdir():
        if path.is_file() and FIXED in (text := path.read_bytes()):
            path.write_bytes(text.replace(FIXED, ANYWHERE.ljust(len(FIXED), b"\0")))
    shutil.copytree(shared / "util", made / "util")
    shutil.copy2(shared / "default-configuration", made / "util")
    for path in ("lib", "util", "bin"):
        (made / path).rename(CACHE / path)
    shutil.rmtree(work)
    print(f"sge: all is in {CACHE}, after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
