"""Iterations to the optimum, the defaults varied one at a time: `python -m benchmarks.defaults`.

On the six image data sets (8×8, 1000 training images, d = 18) and on four tables of scikit-learn's, standardised.
Data sets that are not on the machine are left out, and named.
"""

import functools
import warnings

from benchmarks.timing import print_table

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.models.baselines import solve_logistic
from annealfit.data.datasets import DATASETS
from annealfit._support.errors import AnnealfitError
from annealfit.training.objectives import LinearHead

SEEDS = (42, 43)
AT_MOST = 200
TABLES = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits 64": load_digits}
VARIANTS = {
    "the defaults, 3 bits": {},
    "2 bits": {"bits": 2},
    "1 bit": {"bits": 1},
    "5 bits": {"bits": 5},
    '`coordinates="raw"`': {"method__coordinates": "raw"},
    '`curvature="bound"`': {"method__curvature": "bound"},
    '`curvature="gauss_newton"`': {"method__curvature": "gauss_newton"},
    '`acceptance="line_search"`': {"method__acceptance": "line_search"},
    '`range_policy="adaptive"`': {"method__range_policy": "adaptive"},
    '`precision_policy="adaptive"`': {"method__precision_policy": "adaptive"},
    "D-Wave's chain (`native`)": {"sampler": "native"},
    "no annealing (`rounded`)": {"sampler": "rounded"},
    "all as in 0.1.0": {
        "method__curvature": "bound",
        "method__coordinates": "raw",
        "method__acceptance": "line_search",
        "method__range_policy": "adaptive",
        "sampler": "native",
    },
}


@functools.cache
def rows_of(name, seed):
    """Features, labels and the least loss; None where the data set is not at hand."""
    if name in TABLES:
        X, y = TABLES[name](return_X_y=True)
        X = StandardScaler().fit_transform(X)
    else:
        try:
            data = load_dataset(name, seed=seed)
        except AnnealfitError:
            return None
        X, y = RandomConvFeatures(n_filters=2, random_state=seed).fit_transform(data.X_train), data.y_train
    head = LinearHead.of_arrays(X, y, int(y.max()) + 1, 1e-3)
    return X, y, head.at(solve_logistic(X, y, 1e-3).weights).loss


def iterations(X, y, least, seed, settings):
    """Iterations to 1.01 and to 1.001 times the least loss; `AT_MOST` stands for more."""
    history = AnnealedClassifier(max_iter=AT_MOST, tol=0, random_state=seed).set_params(**settings).fit(X, y).history_
    losses = np.array([row["loss"] for row in history])
    return [1 + int((losses > limit * least).sum()) for limit in (1.01, 1.001)]


def main():
    warnings.simplefilter("ignore")
    names = [name for name in (*DATASETS, *TABLES) if rows_of(name, SEEDS[0]) is not None]
    absent = [name for name in DATASETS if name not in names]
    rows = []
    for label, settings in VARIANTS.items():
        found = [
            np.mean([iterations(*rows_of(name, seed), seed, settings) for seed in SEEDS], axis=0) for name in names
        ]
        rows.append(
            [label, *(", ".join(f"> {AT_MOST}" if n > AT_MOST else f"{n:.0f}" for n in pair) for pair in found)]
        )
    print_table("Iterations to 1.01 and to 1.001 times the least loss", ["setting", *names], rows)
    if absent:
        print(f"Not on this machine: {', '.join(absent)}")


if __name__ == "__main__":
    main()
