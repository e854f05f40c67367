"""Whole trainings: the paper's twenty bits and thousand iterations, against the paper's clock."""

import csv
from pathlib import Path

from benchmarks.timing import least_seconds, print_table

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset

PAPER = Path(__file__).parent.parent / "tests" / "paper" / "execution_seconds.csv"


def run(*, quick: bool) -> None:
    data = load_dataset("digits", seed=42)
    X = RandomConvFeatures(random_state=42).fit_transform(data.X_train)
    with PAPER.open() as file:
        paper = {
            int(row["bits"]): float(row["mean_seconds"]) for row in csv.DictReader(file) if row["dataset"] == "mnist"
        }
    rows = []
    for bits, theirs in paper.items():
        classifier = AnnealedClassifier.from_paper(bits, preset="matched").set_params(random_state=42)
        seconds = least_seconds(lambda: classifier.fit(X, data.y_train), repeats=2)  # noqa: B023
        rows.append([str(bits), f"{theirs:.0f}", f"{seconds:.2f}", f"{theirs / seconds:.0f}×"])
    print_table(
        "1000 iterations, 100 sweeps, ten classes, d = 18: the paper's time (on its machine) and ours",
        ["K", "paper s", "ours s", "ratio"],
        rows,
    )
