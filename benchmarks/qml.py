"""Our estimators on the data sets of qml-benchmarks: `OMP_NUM_THREADS=1 python -m benchmarks.qml FOLDER [PATTERN]`.

FOLDER has the pairs NAME_train.csv and NAME_test.csv that the scripts paper/benchmarks/generate_*.py of qml-benchmarks
(Bowles, Ahmed and Schuld, 2024) write; PATTERN chooses among them. Settings are chosen by three-fold cross-validation
on the training part, for every model. Prints accuracies on the test part, and the mean rank of every model.
"""

import sys
import warnings
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.tables import print_table

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from annealfit import QUBOSVC, AnnealedClassifier, QBoostClassifier, QUBORidgeClassifier

C = [0.1, 1, 10, 100]
GAMMA = [0.01, 0.1, 1]
MODELS = {
    "AnnealedClassifier": (AnnealedClassifier(random_state=0), {"regularization": [1e-1, 1e-2, 1e-3, 1e-4]}),
    "QUBORidgeClassifier": (QUBORidgeClassifier(random_state=0), {"alpha": C}),
    "QUBOSVC": (QUBOSVC(random_state=0), {"C": [1, 10], "gamma": GAMMA}),
    "QBoostClassifier": (QBoostClassifier(random_state=0), {"regularization": [0.001, 0.01]}),
    "LogisticRegression": (LogisticRegression(max_iter=1000), {"C": C}),
    "SVC": (SVC(), {"C": C, "gamma": GAMMA}),
    "MLPClassifier": (MLPClassifier(max_iter=500, random_state=0), {"alpha": [1e-2, 1e-4]}),
}


def main() -> None:
    folder, pattern = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "*"
    pairs = [path for path in sorted(folder.rglob("*_train.csv")) if fnmatch(path.name, pattern)]
    if not pairs:
        raise SystemExit(f"{folder} has no {pattern}_train.csv; run the generate scripts of qml-benchmarks")
    rows, scores = [], []
    for train in pairs:
        X, y = split(train)
        X_test, y_test = split(train.with_name(train.name.replace("_train", "_test")))
        found = []
        for model, grid in MODELS.values():
            name = type(model).__name__.lower()
            search = GridSearchCV(
                make_pipeline(StandardScaler(), model), {f"{name}__{key}": values for key, values in grid.items()}, cv=3
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(search.fit(X, y).score(X_test, y_test))
        scores.append(found)
        rows.append([train.name.removesuffix("_train.csv"), *(f"{100 * score:.1f}" for score in found)])
        print(*rows[-1], flush=True)
    ranks = np.mean([rankdata(-np.array(found)) for found in scores], axis=0)
    rows.append(["mean", *(f"{100 * mean:.1f}" for mean in np.mean(scores, axis=0))])
    rows.append(["mean rank", *(f"{rank:.2f}" for rank in ranks)])
    print_table("Test accuracy, %", ["data set", *MODELS], rows)


def split(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = np.loadtxt(path, delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)


if __name__ == "__main__":
    main()
