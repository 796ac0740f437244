"""What the packages carry besides modules, and what they need."""

import subprocess
import sys
from importlib.resources import files

import pytest


@pytest.mark.parametrize("package", ["scaler", "scaler_dask"])
def test_type_checkers_are_told_that_there_are_types(package):
    assert files(package).joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    ("package", "needed", "advice"),
    [
        ("scaler_dask", "dask", "scaler_dask needs dask: pip install scaler[dask]"),
        ("scaler.joblib", "joblib", "scaler.joblib needs joblib: pip install joblib"),
    ],
)
def test_what_to_install_for_an_adapter_is_said_in_a_line(package, needed, advice):
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {needed!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import {package}"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert ran.stderr.splitlines()[-1] == f"ModuleNotFoundError: {advice}"
    assert ran.stderr.count("Traceback") == 1
