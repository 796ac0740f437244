"""CPython's own tests of what an executor is, from where they are installed, under `scaler.Executor` and others.

`python -m compat_tests.cpython` prints the score card; `pytest compat_tests/cpython` runs the same tests for Scaler.
They are those of `test.test_concurrent_futures` in the form that Python 3.13 has; each runs in a process of its own,
so that one that hangs is one that failed.
"""
