"""joblib on a cluster: importing this package makes the backend "scaler" known to joblib.

    import joblib, scaler.joblib

    with joblib.parallel_config(backend="scaler"):  # or parallel_backend("scaler", address="tcp://...")
        joblib.Parallel(n_jobs=-1)(joblib.delayed(f)(x) for x in xs)

`backend` is what joblib sees, `parallel_call` what is under way for a call of a `Parallel`, `worker_batch` what runs in
workers.
"""

try:
    from joblib.parallel import register_parallel_backend
except ModuleNotFoundError as error:
    if error.name != "joblib":
        raise
    raise ModuleNotFoundError("scaler.joblib needs joblib: pip install joblib", name="joblib") from None

from scaler.joblib.backend import ScalerBackend
from scaler.joblib.worker_batch import BACKEND

register_parallel_backend(BACKEND, ScalerBackend)

__all__ = ["ScalerBackend"]
