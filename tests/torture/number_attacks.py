"""Numbers at the edges: no loss rises, no certificate lies above the optimum, threads do not matter."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from outcomes import Tally, attempt
from scipy.optimize import minimize
from scipy.sparse import csc_array, csr_array
from scipy.special import log_softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from threadpoolctl import threadpool_limits

from annealfit import AnnealedClassifier, to_onnx
from annealfit.data.features import RowScaler
from annealfit.problems.bounds import lower_bounds
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.quantization import quantize_layer
from annealfit.samplers import ExactSolver, LatticeSolver

# Of the loss: the descent is a theorem about real numbers, and these have 53 bits.
ROUNDING = 1e-12
RULES = ("descent", "line_search", "second_direction")


def data_sets(seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Features and labels that are awkward in one way each."""
    generator = np.random.default_rng([seed, 7])
    X, y = generator.normal(size=(60, 4)), np.arange(60) % 3
    X[:, 0] += y
    for exponent in (-200, -150, -100, -30, -8, -3, 3, 7, 8, 12, 30, 100, 140, 150, 200):
        yield f"scale 1e{exponent}", X * 10.0**exponent, y
    for exponent in (3, 5, 6, 7, 8, 9, 12, 15):
        yield f"offset 1e{exponent}", X + 10.0**exponent, y
        yield f"one column offset 1e{exponent}", X + 10.0**exponent * np.array([1, 0, 0, 0]), y
    mixed = X * np.array([1e-8, 1.0, 1e4, 1e8])
    yield "scales from 1e-8 to 1e8", mixed, y
    yield "constant", np.ones((60, 4)), y
    yield "all zero", np.zeros((60, 4)), y
    yield "duplicated columns", np.hstack([X, X, X]), y
    yield "duplicated rows", np.repeat(X[:6], 10, axis=0), np.arange(60) % 3
    yield "separable", X + 20.0 * np.eye(4)[y], y
    yield "one row per class", generator.normal(size=(5, 4)), np.arange(5)
    yield "two classes, one row of one", X[:20], np.r_[np.zeros(19, int), 1]
    yield "1,000 classes", generator.normal(size=(1000, 3)), np.arange(1000)
    yield "more columns than rows", generator.normal(size=(6, 50)), np.arange(6) % 2


def optimum(X: np.ndarray, y: np.ndarray, regularization: float) -> float:
    """An upper bound of the least loss, from SciPy's L-BFGS on centred and scaled features: any point is one."""
    classes, labels = np.unique(y, return_inverse=True)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    Z = (X - mean) / scale
    count, width, n_classes = len(Z), Z.shape[1], len(classes)
    penalty = regularization / scale**2
    free = n_classes if n_classes > 2 else 1

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(width + 1, free)
        outputs = Z @ weights[:-1] + weights[-1]
        if free == 1:
            outputs = np.hstack([np.zeros_like(outputs), outputs])
        logs = log_softmax(outputs, axis=1)
        residuals = np.exp(logs)
        residuals[np.arange(count), labels] -= 1
        residuals = residuals[:, -free:] / count
        value = -logs[np.arange(count), labels].mean() + 0.5 * float(penalty @ (weights[:-1] ** 2).sum(axis=1))
        slope = np.vstack([Z.T @ residuals + penalty[:, None] * weights[:-1], residuals.sum(axis=0)])
        return value, slope.ravel()

    found = minimize(loss, np.zeros((width + 1) * free), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return float(min(found.fun, loss(np.zeros((width + 1) * free))[0]))


def attack_trainings(seed: int, share: float = 1.0) -> Tally:
    """Train on every awkward data set under every rule: the loss never rises, no certificate is above the optimum."""
    tally = Tally("numbers: trainings")
    generator = np.random.default_rng([seed, 8])
    penalties, bits = (0.0, 1e-3, 1.0, 1e6), (1, 3, 30)
    for name, X, y in data_sets(seed):
        many = len(np.unique(y)) > 100
        for penalty, number, rule, basis in itertools.product(penalties, bits, RULES, ("centred", "raw")):
            if generator.random() > share * (0.1 if many else 1.0):
                continue
            what = f"{name}, λ={penalty:g}, {number} bits, {rule}, {basis}"
            settings = {"bits": number, "regularization": penalty, "acceptance": rule, "coordinates": basis}
            settings["max_iter"] = 2 if many else 12
            attempt(tally, what, partial(_train, X, y, **settings), partial(_holds, X=X, y=y))
    return tally


def _train(X: np.ndarray, y: np.ndarray, **settings: Any) -> Any:
    classifier = AnnealedClassifier(**settings, tol=0.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classifier.fit(X, y)


def _holds(clf: Any, X: np.ndarray, y: np.ndarray) -> bool:
    losses = [row["loss"] for row in clf.history_]
    first = np.log(len(clf.classes_))  # weights of zero
    course = np.array([first, *losses])
    if not np.isfinite(course).all() or not np.isfinite(clf.coef_).all() or not np.isfinite(clf.intercept_).all():
        return False
    falls = (np.diff(course) <= ROUNDING * np.maximum(1.0, course[:-1])).all()
    with np.errstate(all="ignore"):
        least = optimum(X, y, clf.regularization)
    certified = clf.history_[-1]["loss"] - clf.optimality_gap_
    below = not np.isfinite(least) or certified <= least + 1e-9 * max(1.0, abs(least))
    return bool(falls and below)


def attack_bounds(seed: int, count: int) -> Tally:
    """Random problems of every scale: the bound is never above what brute force finds."""
    generator, tally = np.random.default_rng([seed, 9]), Tally("numbers: bounds against brute force")
    for number in range(count):
        size, bits = int(generator.integers(1, 5)), int(generator.integers(1, 4))
        root = generator.normal(size=(size, int(generator.integers(1, size + 1))))
        scale, slope = 10.0 ** generator.uniform(-120, 120), 10.0 ** generator.uniform(-120, 120)
        gradient = slope * generator.normal(size=size) * (generator.random() > 0.1)
        delta = 10.0 ** generator.uniform(-20, 20)

        def solve(root=root, gradient=gradient, scale=scale, bits=bits, delta=delta) -> tuple[float, float, float]:  # type: ignore[no-untyped-def]
            problem = QuadraticProblem(scale * (root @ root.T), gradient, Encoding(bits=bits, range=delta))
            exact = ExactSolver().sample(problem).best_energy
            spread = delta * (np.abs(gradient).sum() + delta * np.abs(problem.curvature).sum())
            bound = max(problem.lower_bound(), float(lower_bounds([problem], tight=True)[0]))
            return bound, exact, spread

        def holds(found: tuple[float, float, float]) -> bool:
            bound, exact, spread = found
            return bound <= exact + 1e-12 * spread

        attempt(tally, f"problem {number}", solve, holds)
    return tally


def attack_threads(seed: int, count: int) -> Tally:
    """The same training on one thread and on two: the same bits."""
    generator, tally = np.random.default_rng([seed, 10]), Tally("numbers: one thread and two")
    for number in range(count):
        rows, width = int(generator.integers(50, 3000)), int(generator.integers(2, 120))
        X, y = generator.normal(size=(rows, width)), generator.integers(0, 3, rows)
        penalty = float(10.0 ** generator.uniform(-4, 1))

        def train(X=X, y=y, penalty=penalty) -> list[Any]:  # type: ignore[no-untyped-def]
            found = []
            for threads in (1, 2):
                with threadpool_limits(threads):
                    found.append(_train(X, y, regularization=penalty, max_iter=12))
            return found

        def same(found: list[Any]) -> bool:
            return np.array_equal(found[0].coef_, found[1].coef_)

        attempt(tally, f"training {number}: {rows} × {width}", train, same)
    return tally


def attack_side_by_side(seed: int, count: int) -> Tally:
    """Trainings and layers of several kinds in threads of one process: what each gives alone, bit for bit."""
    generator, tally = np.random.default_rng([seed, 16]), Tally("numbers: several trainings at once")
    tables = [load(return_X_y=True) for load in (load_iris, load_wine, load_digits)]
    samplers = (None, "native", "rounded", "levels:num_reads=3")
    for number in range(count):

        def train(place: int, number: int = number) -> Any:
            own, (X, y) = np.random.default_rng([seed, number, place]), tables[place % 3]
            if place % 4 == 3:
                return quantize_layer(own.normal(size=(20, 5)), own.normal(size=(90, 20)), bits=2).weights
            sampler = samplers[int(own.integers(4))]
            model = AnnealedClassifier(max_iter=15, random_state=place, sampler=sampler)
            return model.fit(StandardScaler().fit_transform(X), y).coef_

        workers = int(generator.integers(2, 9))

        def both(train=train, workers=workers) -> Any:  # type: ignore[no-untyped-def]
            with ThreadPoolExecutor(workers) as pool:
                return [*map(train, range(12))], [*pool.map(train, range(12))]

        attempt(tally, f"round {number}", both, lambda found: all(map(np.array_equal, *found)))
    return tally


def attack_units(seed: int, count: int) -> Tally:
    """Features in any unit, each column in its own, row numbers, times: as good on other rows, or a warning."""
    generator, tally = np.random.default_rng([seed, 11]), Tally("numbers: units of features")
    tables = [load(return_X_y=True) for load in (load_iris, load_wine, load_breast_cancer, load_digits)]
    settings: tuple[dict[str, Any], ...] = ({}, {"method": "descent"}, {"bits": 1}, {"bits": 2}, {"sampler": "rounded"})
    for number in range(count):
        X, y = tables[number % 4]
        train, test = train_test_split(np.arange(len(y)), train_size=0.6, stratify=y, random_state=number)
        usual = StandardScaler().fit(X[train]).transform(X)
        kind, columns = number // 4 % 5, X.shape[1]
        if kind == 0:
            given = usual * 10.0 ** generator.integers(-12, 13)
        elif kind == 1:
            given = usual * 10.0 ** generator.integers(-12, 13, columns)
        elif kind == 2:
            given = np.column_stack([usual, generator.permutation(len(y)) * 10.0 ** generator.integers(0, 13)])
        elif kind == 3:
            times = 1.7e9 + generator.uniform(0, 10.0 ** generator.integers(0, 8), len(y))
            given = np.column_stack([usual, times])
        else:
            given = X * 10.0 ** generator.integers(-12, 13)
        change = csr_array if generator.random() < 0.2 else np.asarray
        options = {"max_iter": 200, "random_state": 0, **settings[int(generator.integers(len(settings)))]}

        def train_both(  # type: ignore[no-untyped-def]
            usual=usual, given=given, y=y, train=train, test=test, change=change, options=options
        ) -> tuple[float, float, bool]:
            known = AnnealedClassifier(max_iter=200, random_state=0).fit(usual[train], y[train])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = AnnealedClassifier(**options).fit(change(given[train]), y[train])
            told = any("standardise" in str(warning.message) for warning in caught)
            return known.score(usual[test], y[test]), found.score(given[test], y[test]), told

        # Some of 60 rows may be answered otherwise by chance.
        attempt(tally, f"training {number}", train_both, lambda found: found[2] or found[1] >= found[0] - 0.07)
    return tally


def attack_proofs(seed: int, count: int) -> Tally:
    """Small problems, with many parameters at the edge of the box or none: a proof is what brute force finds."""
    generator, tally = np.random.default_rng([seed, 13]), Tally("numbers: proofs against brute force")
    for number in range(count):
        bits = int(generator.integers(1, 6))
        size = int(generator.integers(1, 14 // bits + 1))
        rank = int(generator.integers(1, size + 1))
        root = generator.normal(size=(rank, size)) * 10.0 ** generator.uniform(-3, 0, size)
        gradient = root.T @ generator.normal(size=rank) * 10.0 ** generator.uniform(-2, 2)
        if number % 3 == 0:
            gradient = gradient + generator.normal(size=size)
        problem = QuadraticProblem(root.T @ root, gradient, Encoding(bits, 10.0 ** generator.uniform(-3, 2)))

        def holds(answer: Any, problem: QuadraticProblem = problem) -> bool:
            width, best = problem.encoding.range, ExactSolver().sample(problem).best_energy
            scale = width**2 * np.abs(problem.curvature).sum() + 2 * width * np.abs(problem.gradient).sum()
            return bool(answer.info["proven"]) and answer.best_energy <= best + 1e-11 * scale

        attempt(tally, f"problem {number}", lambda problem=problem: LatticeSolver().sample(problem), holds)
    return tally


def attack_exports(folder: Path, seed: int, count: int) -> Tally:
    """ONNX files of models on rows anywhere: the labels of `predict`, or a warning."""
    import onnxruntime

    generator, tally = np.random.default_rng([seed, 14]), Tally("numbers: ONNX files of rows anywhere")
    X, y = load_iris(return_X_y=True)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        rows = X * 10.0 ** generator.integers(-40, 41) if number % 3 == 0 else X.copy()
        rows += (np.arange(4) < generator.integers(1, 5)) * 10.0 ** generator.uniform(-2, 12) * (number % 3 != 0)
        scaler = (StandardScaler(), RowScaler(), MinMaxScaler(), None)[number % 4]

        def export(rows=rows, scaler=scaler) -> tuple[Any, Any, bool]:  # type: ignore[no-untyped-def]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = make_pipeline(scaler, AnnealedClassifier(max_iter=50, random_state=0)).fit(rows, y)
                to_onnx(model, folder / "model.onnx")
                told = any(word in str(one.message) for one in caught for word in ("single precision", "standardise"))
            session = onnxruntime.InferenceSession(folder / "model.onnx")
            with np.errstate(over="ignore"):
                return session.run(["label"], {"X": rows.astype(np.float32)})[0], model.predict(rows), told

        attempt(tally, f"model {number}", export, lambda found: found[2] or (found[0] == found[1]).mean() >= 0.97)
    return tally


def attack_arrays(seed: int, count: int) -> Tally:
    """Sparse arrays with damaged indices, masked arrays: refused, or the answers of what they hold."""
    generator, tally = np.random.default_rng([seed, 15]), Tally("numbers: damaged arrays in memory")
    X, y = load_iris(return_X_y=True)
    for number in range(count):
        array = (csr_array, csc_array)[number % 2](np.where(generator.random(X.shape) < 0.5, X, 0.0))
        part = (array.indices, array.indptr)[int(generator.integers(2))]
        part[int(generator.integers(len(part)))] += generator.choice([-(2**31) + 1, -5, -1, 1, 4, 10**6])

        def answers(array=array) -> list[Any]:  # type: ignore[no-untyped-def]
            model = AnnealedClassifier(max_iter=5, random_state=0)
            of_sparse = model.fit(array, y).predict(array)
            dense = array.toarray()  # now that its indices were checked
            return [of_sparse, model.fit(dense, y).predict(dense)]

        attempt(tally, f"array {number}", answers, lambda found: np.array_equal(*found))
    return tally


def attack_layers(seed: int, count: int) -> Tally:
    """Layers under cancellation, against all levels in extended precision: true errors, and no false proof."""
    generator, tally = np.random.default_rng([seed, 12]), Tally("numbers: low-bit layers under cancellation")
    for number in range(count):
        weights, inputs = generator.normal(size=(4, 6)), generator.normal(size=(100, 4))
        if number % 2:
            distance = 10.0 ** generator.uniform(-9, 0)
            inputs[:, 1] = inputs[:, 0] + distance * generator.normal(size=100)
            weights[:2] *= np.array([[1], [-1]]) / distance
        inputs += 10.0 ** generator.uniform(0, 9)

        def quantise(weights=weights, inputs=inputs) -> tuple[Any, bool, Any, Any]:  # type: ignore[no-untyped-def]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return quantize_layer(weights, inputs, bits=2, method="lattice"), bool(caught), weights, inputs

        attempt(tally, f"layer {number}", quantise, _is_true)
    return tally


def _is_true(found: tuple[Any, bool, Any, Any]) -> bool:
    layer, warned, weights, inputs = found
    rows, wide = inputs.astype(np.longdouble), weights.astype(np.longdouble)
    choices = np.array(list(itertools.product(layer.grid.levels, repeat=len(weights))), dtype=np.longdouble).T
    power, errors = ((rows @ wide) ** 2).mean(axis=0), []
    for output in range(weights.shape[1]):
        own = wide[:, output] - layer.scales[output] * layer.levels[:, output]
        errors.append(((rows @ own) ** 2).mean())
        if layer.proven[output]:
            best = ((rows @ (wide[:, [output]] - layer.scales[output] * choices)) ** 2).mean(axis=0).min()
            if errors[-1] > best + 2e-9 * power[output]:
                return False
    return warned or abs(layer.error - sum(errors) / power.sum()) <= 1e-4  # of the power
