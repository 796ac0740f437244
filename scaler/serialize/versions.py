"""Which versions pickle here: what one process pickles another with the same can unpickle."""

from functools import cache

from scaler.protocol.compatibility import PACKAGES
from scaler.version import __version__


@cache
def packages() -> str:
    """The versions of what makes pickles, as `Hello.packages` has them: "name=version name=version"."""
    import cloudpickle

    versions = {"scaler": __version__, "cloudpickle": cloudpickle.__version__}
    return " ".join(f"{name}={versions[name]}" for name in PACKAGES)
