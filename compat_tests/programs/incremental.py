"""Learning from chunks: models that pass from task to task, several side by side, and a search that halves them.

Data and labels are dask arrays; each chunk is given to `partial_fit` of scikit-learn's SGDClassifier in its turn.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, as_completed, wait
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.preprocessing import StandardScaler

Array = Any
Model = Any

CLASSES = [0, 1, 2]


def make_data(n_rows: int, n_features: int, chunk: int) -> tuple[Array, Array]:
    """Rows of three classes, which are noisy halves of space; lazily, as if they were read from files."""
    rng = da.random.default_rng(7)
    x = rng.normal(size=(n_rows, n_features), chunks=(chunk, n_features))
    weights = np.random.default_rng(8).normal(size=(n_features, len(CLASSES)))
    noise = rng.normal(scale=2.0, size=(n_rows, len(CLASSES)), chunks=(chunk, len(CLASSES)))
    return x * np.linspace(0.5, 3, n_features) + 1, (x @ weights + noise).argmax(axis=1)


def fit_chunk(model: Model, x: Array, y: Array) -> Model:
    """The model, learned on. What was given stays as it is: another task may want it."""
    return copy.deepcopy(model).partial_fit(x, y, classes=CLASSES)


def score_chunk(model: Model, x: Array, y: Array) -> tuple[int, int]:
    return int((model.predict(x) == y).sum()), len(y)


def accuracy(parts: list[tuple[int, int]]) -> float:
    return sum(hits for hits, _ in parts) / sum(n for _, n in parts)


def chunks_of(x: Array, y: Array) -> list[tuple[Any, Any]]:
    """Delayed pairs of data and labels."""
    return list(zip(x.to_delayed().ravel().tolist(), y.to_delayed().ravel().tolist(), strict=True))


# ---- one model, and several ------------------------------------------------------------------------------------------
def one_model(train: list[Any], test: list[Any]) -> dict[str, Any]:
    """A chain of delayed calls through all chunks, twice."""
    fit, score = dask.delayed(fit_chunk), dask.delayed(score_chunk)
    model = dask.delayed(SGDClassifier(random_state=0))
    first = None
    for epoch in range(2):
        for x, y in train:
            model = fit(model, x, y)
        if epoch == 0:
            first = model
    scores = [dask.delayed(accuracy)([score(m, x, y) for x, y in test]) for m in (first, model)]
    fitted, before, after = dask.compute(model, *scores)
    return {"before": before, "after": after, "norm": float(np.linalg.norm(fitted.coef_)), "steps": float(fitted.t_)}


def side_by_side(train: list[Any], test: list[Any]) -> dict[str, Any]:
    """Models that learn from the same chunks, each at its own pace; the chunks are made once."""
    fit, score = dask.delayed(fit_chunk), dask.delayed(score_chunk)
    train, test = dask.persist(train, test)
    models = {}
    for loss in ("hinge", "log_loss", "modified_huber"):
        for alpha in (1e-4, 1e-2):
            model = dask.delayed(SGDClassifier(loss=loss, alpha=alpha, random_state=1))
            for x, y in train:
                model = fit(model, x, y)
            models[f"{loss} {alpha}"] = model
    scored = {name: dask.delayed(accuracy)([score(m, x, y) for x, y in test]) for name, m in models.items()}
    (scores,) = dask.compute(scored)
    return dict(scores)


# ---- a pipeline of two that both learn -------------------------------------------------------------------------------
def scale_and_fit(state: tuple[Any, Any], x: Array, y: Array) -> tuple[Any, Any]:
    scaling, model = copy.deepcopy(state)
    scaling.partial_fit(x)
    return scaling, model.partial_fit(scaling.transform(x), y)


def pipeline(client: Client, x: Array, y: Array) -> dict[str, Any]:
    """A scaler and a regression, whose state passes as one future from chunk to chunk, as they become ready."""
    target = (x * np.arange(x.shape[1])).sum(axis=1) + y
    x, target = client.persist([x, target])
    parts = [
        (client.compute(block), client.compute(values))
        for block, values in zip(x.to_delayed().ravel(), target.to_delayed().ravel(), strict=True)
    ]
    (state,) = client.scatter([(StandardScaler(), SGDRegressor(random_state=0))])
    for block, values in parts:
        state = client.submit(scale_and_fit, state, block, values)
    wait(state)
    scaling, model = state.result()
    return {
        "mean": scaling.mean_.tolist(),
        "coefficients": model.coef_.tolist(),
        "seen": int(scaling.n_samples_seen_),
    }


# ---- a search --------------------------------------------------------------------------------------------------------
def candidates(n: int) -> list[Model]:
    rng = np.random.default_rng(21)
    return [
        SGDClassifier(
            alpha=float(10 ** rng.uniform(-5, 0)),
            loss=str(rng.choice(["hinge", "log_loss", "perceptron"])),
            penalty=str(rng.choice(["l2", "l1", "elasticnet"])),
            random_state=int(rng.integers(1_000)),
        )
        for _ in range(n)
    ]


def successive_halving(client: Client, x: Array, y: Array, x_test: Array, y_test: Array) -> dict[str, Any]:
    """Give all candidates a chunk, keep the better half, give those twice as many, and so on.

    A model that was scored well early goes on before the others of its round have ended.
    """
    blocks = client.compute([*x.to_delayed().ravel(), *y.to_delayed().ravel()])
    half = len(blocks) // 2
    train = list(zip(blocks[:half], blocks[half:], strict=True))
    test = client.scatter([np.asarray(x_test), np.asarray(y_test)], broadcast=True)
    models = {n: client.scatter(model) for n, model in enumerate(candidates(16))}
    fits, position, calls, rounds = 0, 0, 1, []
    while len(models) > 1:
        owners = {}
        for n in models:
            for call in range(calls):
                models[n] = client.submit(fit_chunk, models[n], *train[(position + call) % half])
                fits += 1
            owners[client.submit(score_chunk, models[n], *test)] = n
        scores = {}
        for future, (hits, _) in as_completed(owners, with_results=True):
            scores[owners[future]] = hits
        ranking = sorted(scores, key=lambda n: (-scores[n], n))
        rounds.append([[n, scores[n]] for n in ranking[:4]])
        models = {n: models[n] for n in ranking[: len(ranking) // 2]}
        position, calls = position + calls, 2 * calls
    ((best, model),) = models.items()
    return {"best": best, "fits": fits, "rounds": rounds, "intercepts": model.result().intercept_.tolist()}


def main(n_rows: int = 24_000, n_features: int = 12, chunk: int = 2_000) -> dict[str, Any]:
    """Make the data, learn in four ways, and say what came out."""
    with Client(n_workers=2, threads_per_worker=1) as client:
        x, y = make_data(n_rows, n_features, chunk)
        split = n_rows - 3 * chunk
        x_train, y_train, x_test, y_test = x[:split], y[:split], x[split:], y[split:]
        train, test = chunks_of(x_train, y_train), chunks_of(x_test, y_test)
        return {
            "classes": da.bincount(y, minlength=3).compute().tolist(),
            "one": one_model(train, test),
            "several": side_by_side(train, test),
            "pipeline": pipeline(client, x_train, y_train),
            "halving": successive_halving(client, x_train, y_train, x_test, y_test),
        }


if __name__ == "__main__":
    print(json.dumps(main()))
