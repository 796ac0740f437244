"""The version of the package, which processes that work together compare."""

__version__ = "0.1.0"
