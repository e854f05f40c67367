"""Our estimators on the data sets of qml-benchmarks: `OMP_NUM_THREADS=1 python -m benchmarks.qml FOLDER [--help]`.

FOLDER has the pairs NAME_train.csv and NAME_test.csv that the scripts paper/benchmarks/generate_*.py of qml-benchmarks
(Bowles, Ahmed and Schuld, 2024) write. As in their scripts, settings are chosen by five-fold cross-validation on the
training part. With `--results`, the folder paper/results of qml-benchmarks, the models of the paper are ranked too.
With `--cache`, an interrupted run goes on. Prints test accuracies by group of data sets, and the mean rank of every
model.
"""

import argparse
import warnings
from pathlib import Path

import joblib
from benchmarks.tables import print_table

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

from annealfit import (
    QUBOSVC,
    AnnealedClassifier,
    AnnealedRBM,
    BinaryMatrixFactorization,
    QBoostClassifier,
    QUBORidgeClassifier,
)

ENOUGH = 0.85  # of the data sets: models with fewer are not ranked, so that few data sets drop out
C, GAMMA = [0.1, 1, 10, 100], [0.001, 0.01, 0.1, 1]
MODELS = {
    "AnnealedClassifier": (StandardScaler(), AnnealedClassifier(), {"regularization": [1e-1, 1e-2, 1e-3, 1e-4]}),
    "QUBORidgeClassifier": (StandardScaler(), QUBORidgeClassifier(), {"alpha": C}),
    "QUBOSVC": (StandardScaler(), QUBOSVC(), {"C": C, "gamma": GAMMA}),
    "QBoostClassifier": (StandardScaler(), QBoostClassifier(), {"regularization": [0.01, 0.04]}),
    "BinaryMatrixFactorization": (MinMaxScaler(clip=True), BinaryMatrixFactorization(), {"n_components": [20, 80]}),
    "AnnealedRBM": (MinMaxScaler(), AnnealedRBM(), {"learning_rate": [0.05, 0.2, 0.5]}),
    "LogisticRegression": (StandardScaler(), LogisticRegression(max_iter=1000), {"C": C}),
    "SVC here": (StandardScaler(), SVC(), {"C": C, "gamma": GAMMA}),
}


def split(path):
    """Rows and labels of a file."""
    table = np.loadtxt(path, delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)


def scores(train):
    """Test accuracy of each of our models; none of a model that does not take so many rows."""
    X, y = split(train)
    X_test, y_test = split(train.with_name(train.name.replace("_train", "_test")))
    found = {}
    for name, (scaler, model, grid) in MODELS.items():
        if "random_state" in model.get_params():
            model.set_params(random_state=0)
        prefix = type(model).__name__.lower()
        search = GridSearchCV(make_pipeline(scaler, model), {f"{prefix}__{key}": each for key, each in grid.items()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if len(X) <= 10_000 or "SVC" not in name:
                found[name] = search.fit(X, y).score(X_test, y_test)
    return train, found


def of_the_paper(results, train):
    """Mean test accuracy of each model of the paper that has one for this data set.

    Some files have the training accuracies as test accuracies, as SVC's show by another value here; these are left out.
    """
    ending = f"_{train.name.removesuffix('_train.csv')}_GridSearchCV-best-hyperparams-results.csv"
    files = sorted(results.glob(f"*/*/*{ending}"))
    tables = ((path.name.removesuffix(ending), np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)) for path in files)
    return {
        f"{name} (paper)": table[:, 2].mean()
        for name, table in tables
        if table[:, 2].min() == 1 or (table[:, 1] != table[:, 2]).any()
    }


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qml", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, help="paper/results of qml-benchmarks")
    parser.add_argument("--cache", type=Path, help="a folder for the scores of finished data sets")
    parser.add_argument("--pattern", default="*", help="of NAME")
    given = parser.parse_args()
    trains = sorted(given.folder.rglob(f"{given.pattern}_train.csv"))
    if not trains:
        raise SystemExit(f"{given.folder} has no {given.pattern}_train.csv; run the generate scripts of qml-benchmarks")
    found, scored = {}, joblib.Memory(given.cache, verbose=0).cache(scores)
    for train, own in joblib.Parallel(-1, return_as="generator")(joblib.delayed(scored)(train) for train in trains):
        found[train] = own | (of_the_paper(given.results, train) if given.results else {})
        print(train.stem, *(f"{name} {100 * score:.1f}" for name, score in own.items()), sep=", ", flush=True)
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    names = [name for name in names if sum(name in own for own in found.values()) >= ENOUGH * len(found)]
    ranked = [own for own in found.values() if all(name in own for name in names)]
    ranks = np.mean([rankdata([-own[name] for name in names]) for own in ranked], axis=0)
    groups = sorted({train.parent.name for train in found})
    rows = []
    for name, rank in sorted(zip(names, ranks, strict=True), key=lambda pair: pair[1]):
        means = []
        for group in groups:
            own = [each[name] for train, each in found.items() if train.parent.name == group and name in each]
            means.append(f"{100 * np.mean(own):.1f} ({len(own)})" if own else "")
        rows.append([name, f"{rank:.2f}", *means])
    title = f"Mean rank on the {len(ranked)} of {len(found)} data sets that all have; mean test accuracy, % (data sets)"
    print_table(title, ["model", "rank", *groups], rows)


if __name__ == "__main__":
    main()
