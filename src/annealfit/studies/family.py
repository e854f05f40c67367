"""The models that the literature trains by annealing, each beside its classical counterpart, on the paper's data sets.

All read the same pixels. Models that transform images are followed by the same head, a logistic regression.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import NMF, MiniBatchDictionaryLearning
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import cohen_kappa_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from annealfit import models
from annealfit._support.files import read_json, write_json
from annealfit._support.threads import blas_threads
from annealfit.data.datasets import Dataset, DataWarning, is_available, load_dataset
from annealfit.studies.execute import in_processes
from annealfit.studies.paper_tables import BENCHMARK_DATASETS, SEEDS
from annealfit.studies.records import IMAGES
from annealfit.studies.report import tables
from annealfit.studies.report.drawing import save_figure
from annealfit.studies.report.figures import draw_family
from annealfit.studies.report.tables import Cell, Row, Table, mean_cell

FOLDER, FIGURE = "family", "family.png"
DATASETS = ("digits", *BENCHMARK_DATASETS)
_PATCH, _ATOMS, _COMPONENTS, _UNITS, _LEARNERS = 5, 64, 64, 128, 50


class LassoPatches(TransformerMixin, BaseEstimator):
    """Codes of image patches by scikit-learn's lasso: the counterpart of `BinarySparseCoding`."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LassoPatches:
        """Learn a dictionary of the patches of square images, given as rows."""
        patches = self._patches(X).reshape(-1, _PATCH**2)
        drawn = np.random.default_rng(self.random_state).permutation(len(patches))[:2000]
        settings = {"alpha": 0.1, "fit_algorithm": "cd", "transform_algorithm": "lasso_cd", "max_iter": 5}
        learning = MiniBatchDictionaryLearning(_ATOMS, random_state=self.random_state, **settings)
        self.learning_ = learning.fit(patches[drawn])
        return self

    def transform(self, X: Any) -> Any:
        """Return the codes of all patches of each image side by side."""
        patches = self._patches(X)
        return self.learning_.transform(patches.reshape(-1, _PATCH**2)).reshape(len(patches), -1)

    def _patches(self, X: Any) -> Any:
        images = X.reshape(len(X), round(X.shape[1] ** 0.5), -1)
        return np.lib.stride_tricks.sliding_window_view(images, (_PATCH, _PATCH), axis=(1, 2))


def _with_head(transformer: Any) -> Any:
    return make_pipeline(transformer, StandardScaler(), LogisticRegression(max_iter=1000))


def _scaled(classifier: Any) -> Any:
    return make_pipeline(StandardScaler(), classifier)


# By title: makers, from a seed, of the model trained by annealing and of its counterpart.
Maker = Callable[[int], Any]
PAIRS: dict[str, tuple[Maker, Maker]] = {
    "Softmax, QUBO updates": (
        lambda seed: _scaled(models.AnnealedClassifier(random_state=seed)),
        lambda seed: _scaled(LogisticRegression(C=1.0, max_iter=1000)),
    ),
    "Least squares": (
        lambda seed: _scaled(models.QUBORidgeClassifier(random_state=seed)),
        lambda seed: _scaled(RidgeClassifier()),
    ),
    "Support vectors": (lambda seed: _scaled(models.QUBOSVC(random_state=seed)), lambda seed: _scaled(SVC())),
    "Boosting": (
        lambda seed: models.QBoostClassifier(n_estimators=_LEARNERS, random_state=seed),
        lambda seed: OneVsRestClassifier(AdaBoostClassifier(n_estimators=_LEARNERS, random_state=seed)),
    ),
    "Sparse coding": (
        lambda seed: _with_head(models.BinarySparseCoding(_ATOMS, patch_size=_PATCH, random_state=seed)),
        lambda seed: _with_head(LassoPatches(seed)),
    ),
    "Matrix factorisation": (
        lambda seed: _with_head(models.BinaryMatrixFactorization(_COMPONENTS, random_state=seed)),
        lambda seed: _with_head(NMF(_COMPONENTS, random_state=seed)),
    ),
    "Boltzmann machine": (
        lambda seed: _with_head(models.AnnealedRBM(_UNITS, random_state=seed)),
        lambda seed: _with_head(BernoulliRBM(_UNITS, learning_rate=0.05, n_iter=30, random_state=seed)),
    ),
}


@dataclass(frozen=True)
class Run:
    """A model, or its counterpart, on a data set with a seed."""

    dataset: str
    images: str
    model: str  # of PAIRS
    annealed: bool
    seed: int

    @property
    def file(self) -> str:
        """Name of the file of its result."""
        kind = "annealed" if self.annealed else "classical"
        return f"{self.dataset}-{self.images}-{self.model.replace(' ', '_').replace(',', '')}-{kind}-{self.seed}.json"


def runs(images: str, seeds: Sequence[int] = SEEDS, datasets: Iterable[str] = DATASETS) -> list[Run]:
    """Return the runs on the data sets whose files are there; those of one data set and seed follow each other."""
    sources = {name: "digits" if (name, images) == ("mnist", "published") else name for name in datasets}
    there = [name for name, source in sources.items() if is_available(source)]
    return [
        Run(name, images, model, annealed, seed)
        for name in there
        for seed in seeds
        for model in PAIRS
        for annealed in (True, False)
    ]


@lru_cache(maxsize=2)
def _data(dataset: str, images: str, seed: int) -> tuple[Any, Any, Dataset]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the command line says it once
        data = load_dataset(dataset, seed=seed, images=images)
    largest = float(data.X_train.max())
    return *(part.reshape(len(part), -1) / largest for part in (data.X_train, data.X_test)), data


def execute(run: Run) -> dict[str, Any]:
    """Fit the model and return what it reached, and what its problems were."""
    with blas_threads(0), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rows, test_rows, data = _data(run.dataset, run.images, run.seed)
        began = time.perf_counter()
        fitted = PAIRS[run.model][0 if run.annealed else 1](run.seed).fit(rows, data.y_train)
        seconds = time.perf_counter() - began
        predicted = fitted.predict(test_rows)
    result = {
        "accuracy": float((predicted == data.y_test).mean()),
        "kappa": float(cohen_kappa_score(data.y_test, predicted)),
        "seconds": seconds,
    }
    return asdict(run) | result | (_account(fitted) if run.annealed else {})


def _account(fitted: Any) -> dict[str, int]:
    """Return how many problems were solved, and the variables of the largest."""
    for model in [step for _, step in getattr(fitted, "steps", [("", fitted)])]:
        if isinstance(model, models.AnnealedClassifier):
            variables = (model.coef_.shape[1] + 1) * model.bits
            return {"solves": model.n_iter_ * len(model.coef_), "variables": variables}
        if hasattr(model, "n_solves_"):
            return {"solves": model.n_solves_, "variables": model.n_variables_}
    raise TypeError(f"{fitted!r} has no model that is trained by annealing")


def collect(
    folder: Path, wanted: Sequence[Run], n_jobs: int = -1, on_run: Callable[[int], Any] = lambda done: None
) -> list[dict[str, Any]]:
    """Carry out the runs that have no result in the folder, store each at once, and draw the figure of all."""
    stored = {run: folder / FOLDER / run.file for run in wanted}
    results = {run: _read(path) for run, path in stored.items() if path.exists()}
    on_run(len(results))
    todo = [run for run in wanted if run not in results]
    # Runs of one data set and seed stay together: a worker keeps the images for the next model.
    for result in in_processes(execute, ((run,) for run in todo), n_jobs):
        run = Run(*(result[entry.name] for entry in fields(Run)))
        write_json(stored[run], result)
        results[run] = result
        on_run(len(results))
    found = [results[run] for run in wanted]
    save_figure(draw_family(found), folder / FIGURE)
    return found


def read(folder: Path) -> list[dict[str, Any]]:
    """Return all results stored in a folder, in the order of data sets, models and seeds."""
    found = [_read(path) for path in (folder / FOLDER).glob("*.json")]
    places = [*IMAGES, *DATASETS, *PAIRS]
    return sorted(
        found,
        key=lambda r: (*(places.index(r[name]) for name in ("images", "dataset", "model")), -r["annealed"], r["seed"]),
    )


def _read(path: Path) -> dict[str, Any]:
    result = read_json(path, "a result of reproduce; delete it to go on")
    for name, known in (("dataset", DATASETS), ("images", IMAGES), ("model", PAIRS)):
        result[name].one_of(known)
    for name in ("accuracy", "kappa"):
        result[name].number(minimum=-1, maximum=1)
    result["seconds"].number(minimum=0)
    for name in ("seed", *(("solves", "variables") if result["annealed"].flag() else ())):
        result[name].whole(minimum=0)
    return {name: entry.scalar() for name, entry in result.entries().items()}


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each data set and pair of models: accuracy, κ and seconds of both, and what was solved."""
    groups: dict[tuple[str, str, str], dict[bool, list[Mapping[str, Any]]]] = {}
    for result in results:
        pair = groups.setdefault((result["dataset"], result["images"], result["model"]), {True: [], False: []})
        pair[result["annealed"]].append(result)
    rows: list[Row] = []
    for (dataset, images, model), pair in groups.items():
        row = {"dataset": Cell(tables.dataset_title(dataset)), "images": Cell(images), "model": Cell(model)}
        for annealed, kind in ((True, ""), (False, "classical_")):
            own = pair[annealed]
            if own:
                for name, scale in (("accuracy_percent", 100), ("kappa", 1), ("seconds", 1)):
                    values = [scale * result[name.removesuffix("_percent")] for result in own]
                    row[kind + name] = mean_cell(name, values)
        if pair[True]:
            variables = max(result["variables"] for result in pair[True])
            row |= {
                "solves": tables.count_cell(round(float(np.mean([result["solves"] for result in pair[True]])))),
                "variables": tables.count_cell(variables),
                "fits": Cell("yes" if variables <= max(tables.LARGEST_CLIQUES.values()) else "no"),
            }
        rows.append(row)
    return tables.make_table("family", rows)
