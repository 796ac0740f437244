"""scikit-learn under a backend of joblib: `python -m compat_tests.joblib.learning BACKEND` prints scores and seconds.

One line of JSON: for each piece of work its scores, and the seconds of the best of its rounds, with workers that are
there.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import joblib
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import SVC


def grid_search() -> list[float]:
    """30 fits of some 50 ms."""
    data, target = load_digits(return_X_y=True)
    grid = {"C": [0.1, 1.0, 10.0], "gamma": [0.0005, 0.001]}
    search = GridSearchCV(SVC(), grid, cv=5).fit(data, target)
    return [float(score) for score in search.cv_results_["mean_test_score"]]


def many_small_fits() -> list[float]:
    """100 fits of a few milliseconds."""
    data, target = make_classification(400, 10, random_state=0)
    grid = {"C": [10.0 ** (n / 10) for n in range(-10, 10)]}
    search = GridSearchCV(LogisticRegression(), grid, cv=5).fit(data, target)
    return [float(score) for score in search.cv_results_["mean_test_score"]]


def cross_validation() -> list[float]:
    """Ten fits on 32 MB."""
    data, target = make_classification(40_000, 100, random_state=0)
    return [float(score) for score in cross_val_score(LogisticRegression(max_iter=20), data, target, cv=10)]


def forest() -> list[float]:
    """100 trees on 16 MB."""
    data, target = make_classification(20_000, 100, random_state=0)
    model = RandomForestClassifier(100, max_depth=6, random_state=0, n_jobs=-1).fit(data[:15_000], target[:15_000])
    return [float(model.score(data[15_000:], target[15_000:]))]


ROUNDS = 3
WORK: tuple[Callable[[], list[float]], ...] = (grid_search, many_small_fits, cross_validation, forest)


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    """The backend with two workers, ready."""
    with contextlib.ExitStack() as stack:
        if name == "scaler":
            import scaler.joblib
            from scaler import Client, SchedulerClusterCombo

            cluster = stack.enter_context(SchedulerClusterCombo(n_workers=2))
            client = stack.enter_context(Client(cluster.address))
            stack.enter_context(joblib.parallel_config(scaler.joblib.ScalerBackend(client=client), n_jobs=2))
        else:
            if name == "dask":
                import distributed

                stack.enter_context(distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None))
            stack.enter_context(joblib.parallel_config(name, n_jobs=2))
        joblib.Parallel()(joblib.delayed(_import)() for _ in range(8))
        yield


def _import() -> None:
    import sklearn.ensemble  # noqa: F401


def main() -> None:
    """See the module's text."""
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    with backend(sys.argv[1]):
        for work in WORK:
            seconds = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                scores = work()
                seconds.append(time.perf_counter() - began)
            results[work.__name__] = {"scores": scores, "seconds": min(seconds)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
