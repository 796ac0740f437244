"""The tests that dask publishes for functions like `scaler_get`."""

from dask.utils_test import GetFunctionTestMixin

from scaler_dask import scaler_get


class TestScalerGet(GetFunctionTestMixin):
    get = staticmethod(scaler_get)
