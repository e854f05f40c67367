"""The models that the literature trains by annealing, each beside its classical counterpart, on the paper's data sets.

All read the same pixels. Models that transform images are followed by the same head, a logistic regression.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import NMF, MiniBatchDictionaryLearning
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from annealfit import models
from annealfit.data.datasets import Dataset
from annealfit.studies.execute import record_of_predictions
from annealfit.studies.paper_tables import DATASETS
from annealfit.studies.records import ANNEALED, COUNTERPART, Record, RunSpec
from annealfit.studies.report import drawing, tables
from annealfit.studies.report.tables import Cell, Row

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


# Makers, from a seed, of each model trained by annealing and of its counterpart.
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


def runs(seeds: Sequence[int], images: str) -> list[RunSpec]:
    """Every model and its counterpart on the paper's six data sets."""
    chosen = product(DATASETS, seeds, PAIRS, (ANNEALED, COUNTERPART))
    return [RunSpec(name, method, seed, images=images, model=model) for name, seed, model, method in chosen]


def train(spec: RunSpec, data: Dataset) -> Record:
    """Fit a model and return what it reached, and what its problems were."""
    largest = float(data.X_train.max())
    rows, test_rows = (part.reshape(len(part), -1) / largest for part in (data.X_train, data.X_test))
    began = time.perf_counter()
    fitted = PAIRS[str(spec.model)][spec.method == COUNTERPART](spec.seed).fit(rows, data.y_train)
    seconds = time.perf_counter() - began
    counts = _counts(fitted) if spec.method == ANNEALED else {}
    return record_of_predictions(data, spec.label, fitted.predict(test_rows), spec=spec, seconds=seconds, counts=counts)


def _counts(fitted: Any) -> dict[str, int]:
    """Return how many problems were solved, and the variables of the largest."""
    for model in [step for _, step in getattr(fitted, "steps", [("", fitted)])]:
        if isinstance(model, models.AnnealedClassifier):
            variables = (model.coef_.shape[1] + 1) * model.bits
            return {"solves": model.n_iter_ * len(model.coef_), "variables": variables}
        if hasattr(model, "n_solves_"):
            return {"solves": model.n_solves_, "variables": model.n_variables_}
    raise TypeError(f"{fitted!r} has no model that is trained by annealing")


def rows(records: Sequence[Record]) -> list[Row]:
    """A row for each data set and pair of models: accuracy, κ and seconds of both, and what was solved."""
    found = tables.groups(records, "family")
    columns = {"accuracy_percent": "test_accuracy_percent", "kappa": "kappa", "seconds": "seconds"}
    pairs = tables.side_by_side(found, {ANNEALED: "", COUNTERPART: "classical_"}, columns)
    for group in found:
        if group.spec.method == ANNEALED:
            variables = int(max(group.values("variables")))
            pairs[group.data, group.spec.model] |= {
                "solves": tables.count_cell(round(group.mean("solves"))),
                "variables": tables.count_cell(variables),
                "fits": Cell("yes" if variables <= max(tables.LARGEST_CLIQUES.values()) else "no"),
            }
    return [*pairs.values()]


def draw(records: Sequence[Record]) -> Any:
    """Mean test accuracy of each model on each data set, of its counterpart, and a line between them."""
    found = tables.by_dataset(tables.groups(records, "family"))
    lines = math.ceil(len(found) / 3)
    figure = drawing.make_figure(figsize=(11, 0.9 + 2.4 * lines))
    panels = figure.subplots(lines, min(len(found), 3), squeeze=False, sharey=True).ravel()
    for panel, (dataset, members) in zip(panels, found.items(), strict=False):
        means = {(group.spec.model, group.spec.method): group.mean("test_accuracy_percent") for group in members}
        names = list(dict.fromkeys(model for model, _ in means))
        for place, name in enumerate(names):
            ends = [means.get((name, method), np.nan) for method in (ANNEALED, COUNTERPART)]
            panel.plot(ends, [place, place], color=drawing.FAINT, zorder=1)
            for end, label, style in zip(ends, ("by annealing", "counterpart"), _MARKS, strict=True):
                panel.plot([end], [place], linestyle="", label=label, **style)
        drawing.dress(panel, xlabel=f"{tables.dataset_title(dataset)}: test accuracy, %", ylabel="")
        panel.set_yticks(range(len(names)), names)
    for panel in panels[len(found) :]:
        panel.set_visible(False)
    panels[0].invert_yaxis()
    drawing.legend_below(figure, panels[0].get_legend_handles_labels()[0][:2])
    return figure


_MARKS: tuple[dict[str, Any], ...] = (
    {"color": drawing.SERIES[0], "marker": "o"},
    {"color": drawing.INK, "marker": "|", "markersize": 11},
)
