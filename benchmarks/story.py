"""The paper's settings and ours on digits, seeds 42–46: the table and the picture of docs/defaults.md.

`python -m benchmarks.story` prints the table and draws docs/images/story.png.
"""

from pathlib import Path
from typing import Any

from benchmarks.timing import print_table

import numpy as np
from matplotlib.text import Text

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.models.baselines import solve_logistic
from annealfit.training.objectives import LinearHead
from annealfit.studies.report.drawing import INK, SERIES, SOFT, dress, make_figure, save_figure, use_logarithm

SEEDS = range(42, 47)
IMAGE = Path(__file__).parent.parent / "docs" / "images" / "story.png"
# Where a label may stand around its marker, in points, and which part of it stands there: near before far.
PLACES = [
    (distance * x, distance * y, {1: "left", 0: "center", -1: "right"}[x], {1: "bottom", 0: "center", -1: "top"}[y])
    for distance in (7, 16, 28, 42)
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
]


def settings() -> dict[str, AnnealedClassifier]:
    found = {f"literal, {bits} bits": AnnealedClassifier.from_paper(bits) for bits in (5, 20)}
    found |= {f"matched, {bits} bits": AnnealedClassifier.from_paper(bits, "matched") for bits in (5, 10, 20)}
    found |= {f"annealfit, {bits} bit{'s' * (bits > 1)}": AnnealedClassifier(bits) for bits in (1, 2, 3)}
    found["annealfit, 3 bits, descent"] = AnnealedClassifier(3, max_iter=1000, method="descent")
    return found


def measure() -> tuple[list[list[str]], dict[str, list[float]], float]:
    """Rows of the table, the mean course of the loss above the optimum of each setting, and the optimum's accuracy."""
    rows, courses, optimum_accuracy = [], {}, []
    for name, classifier in settings().items():
        results, losses = [], []
        for seed in SEEDS:
            data = load_dataset("digits", seed=seed)
            features = RandomConvFeatures(random_state=seed).fit(data.X_train)
            X, X_test = features.transform(data.X_train), features.transform(data.X_test)
            weights = solve_logistic(X, data.y_train, 1e-3).weights
            optimum = LinearHead.of_arrays(X, data.y_train, 10, 1e-3).at(weights).loss
            optimum_accuracy.append(LinearHead.of_arrays(X_test, data.y_test, 10, 1e-3).at(weights).accuracy)
            classifier.set_params(random_state=seed).fit(X, data.y_train)
            history = classifier.history_
            losses.append(np.array([row["loss"] for row in history]) / optimum)
            raised = np.mean([row["loss_change"] > 0 for row in history])
            results.append((len(history), losses[-1][-1], classifier.score(X_test, data.y_test), raised))
        iterations, ratio, accuracy, raised = np.mean(results, axis=0)
        cells = (f"{19 * classifier.bits}", f"{iterations:.0f}", f"{ratio:.5f}", f"{accuracy:.1%}", f"{raised:.0%}")
        rows.append([name, *cells])
        length = max(map(len, losses))  # a run that has stopped stays where it is
        courses[name] = list(np.mean([np.pad(run, (0, length - len(run)), mode="edge") for run in losses], axis=0))
    return rows, courses, float(np.mean(optimum_accuracy))


def draw(courses: dict[str, list[float]]) -> None:
    figure = make_figure(figsize=(10, 4))
    by_iterations, by_variables = figure.subplots(1, 2)
    colours = {"literal": SOFT, "matched": SERIES[1], "annealfit": SERIES[0]}
    dashes = {"1 bit": ":", "2 bits": "--", "3 bits": "-", "5 bits": ":", "10 bits": "--", "20 bits": "-"}
    labels = []
    for name, course in courses.items():
        method, bits, *rule = name.split(", ")
        if rule:
            continue
        style = {"color": colours[method], "linestyle": dashes[bits], "linewidth": 1.5}
        by_iterations.plot(range(1, len(course) + 1), course, label=name, **style)
        marker = {"literal": "x", "matched": "s", "annealfit": "o"}[method]
        point = 19 * int(bits.split()[0]), max(course[-1] - 1, 1e-7)
        by_variables.plot(*point, marker, color=colours[method], markersize=7)
        labels.append(label_point(by_variables, name, point))
    by_iterations.axhline(1.0, color=INK, linewidth=0.8)
    by_iterations.set(xlabel="Iteration (10 solves)", ylabel="Loss ÷ optimum")
    by_variables.set(xlabel="Binary variables in each problem", ylabel="Final loss above the optimum, share of it")
    by_variables.set(xscale="log", yscale="log", xlim=(12, 1500))
    for axes in (by_iterations, by_variables):
        dress(axes)
        use_logarithm(axes, "x", "y")
    by_iterations.legend(frameon=False, fontsize=8)
    figure.suptitle("Digits, mean of seeds 42–46; the line at 1 is the optimum (logistic regression)")
    figure.draw_without_rendering()  # until the panels have their places, labels cannot have theirs
    part_labels(by_variables, labels)
    save_figure(figure, IMAGE)


def label_point(axes: Any, text: str, place: tuple[float, float]) -> Any:
    """A label of a marker, with a thin line to it; `part_labels` finds its place."""
    leader = {"arrowstyle": "-", "color": SOFT, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 4}
    return axes.annotate(text, place, (0, 0), textcoords="offset points", arrowprops=leader, fontsize=8, color=INK)


def part_labels(axes: Any, labels: list[Any]) -> None:
    """Put each label beside its marker, where it covers as few others as possible and stays inside the panel."""
    panel, obstacles = axes.get_window_extent(), [line.get_window_extent() for line in axes.lines]  # markers are lines

    def put(text: Any, place: tuple[float, float, str, str]) -> Any:
        text.set(position=place[:2], horizontalalignment=place[2], verticalalignment=place[3])
        return Text.get_window_extent(text)  # without its leader

    def cost(text: Any, place: tuple[float, float, str, str]) -> int:
        extent = put(text, place)
        inside = panel.x0 <= extent.x0 and extent.x1 <= panel.x1 and panel.y0 <= extent.y0 and extent.y1 <= panel.y1
        return int(extent.count_overlaps(obstacles)) + (0 if inside else 2)

    for text in labels:
        best = min(PLACES, key=lambda place: cost(text, place))  # the nearest of the best
        obstacles.append(put(text, best))


def main() -> None:
    rows, courses, accuracy = measure()
    headings = ["setting", "variables", "iterations", "loss ÷ optimum", "test accuracy", "loss-raising"]
    print_table(f"Digits, seeds 42–46 (test accuracy at the optimum: {accuracy:.1%})", headings, rows)
    draw(courses)


if __name__ == "__main__":
    main()
