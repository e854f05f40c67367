"""Plots: plain numbers on axes, labels that keep apart, whatever is drawn."""

import numpy as np
import pytest
from pictures import assert_readable

from annealfit.studies.report.drawing import draw_convergence, dress, log_ticks, make_figure, number_text, use_logarithm


@pytest.mark.parametrize("low", [1e-7, 0.003, 0.7, 1.0, 40.0])
@pytest.mark.parametrize("factor", [1.05, 1.7, 5.0, 40.0, 1e3, 1e6, 1e11])
def test_ticks_are_few_and_within(low, factor):
    ticks = log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 7
    assert ticks == sorted(ticks)
    assert all(low <= tick <= low * factor for tick in ticks)
    texts = [number_text(tick) for tick in ticks]
    assert len(set(texts)) == len(texts)


def test_a_logarithmic_axis_keeps_its_limits_and_has_plain_numbers():
    axes = (figure := make_figure()).subplots()
    axes.plot([2, 900], [1e-6, 20])
    dress(axes)
    use_logarithm(axes, "x", "y")
    figure.draw_without_rendering()
    assert [text.get_text() for text in axes.get_xticklabels()] == ["3", "10", "30", "100", "300", "1,000"]
    assert "10⁻⁶" in {text.get_text() for text in axes.get_yticklabels()}
    assert axes.get_xlim()[0] < 2
    assert axes.get_xlim()[1] > 900
    assert_readable(figure)


def runs(records, dataset):
    chosen = [record for record in records if record.run.dataset == dataset and record.error is None]
    return [next(r for r in chosen if r.run.method == method) for method in ("qubo", "classical", "optimum")]


def test_a_runs_figures_are_readable(records):
    shown = runs(records, "digits")
    figure = draw_convergence(shown, "digits: training")
    assert_readable(figure)
    by_time = figure.axes[2]
    assert by_time.get_xlabel() == "Seconds of training"
    assert len(by_time.lines) == 3
    assert "10 solves" in figure.axes[0].get_xlabel()


def test_validation_is_a_curve_of_its_own(records):
    qubo, *_ = runs(records, "digits")
    n = len(qubo.history["iteration"])
    watched = {"validation_accuracy": np.linspace(0.1, 0.7, n), "validation_cross_entropy": np.linspace(2, 1, n)}
    qubo.history.update(watched)
    try:
        accuracy, loss, by_time = draw_convergence([qubo], "digits").axes
    finally:
        for name in watched:
            del qubo.history[name]
    penalty = np.subtract(qubo.history["loss"], qubo.history["cross_entropy"])
    watched["validation_cross_entropy"] = watched["validation_cross_entropy"] + penalty  # as the training's has
    for axes, name in ((accuracy, "validation_accuracy"), (loss, "validation_cross_entropy")):
        dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
        assert len(dotted) == 1
        np.testing.assert_array_equal(dotted[0].get_ydata(), watched[name])
        assert dotted[0].get_label().endswith(", validation")
    assert len(by_time.lines) == 1
