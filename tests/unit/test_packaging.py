"""What the packages carry besides modules."""

from importlib.resources import files

import pytest


@pytest.mark.parametrize("package", ["scaler", "scaler_dask"])
def test_type_checkers_are_told_that_there_are_types(package):
    assert files(package).joinpath("py.typed").is_file()
