"""The figure: what fits is told by the markers' filling, not by colour alone."""

import pytest
from pictures import assert_readable

from annealfit._support.errors import InvalidInputError
from annealfit.hardware.feasibility import Workload, published_device
from annealfit.hardware.topologies import ideal_chip
from annealfit.studies.hardware_study import study_hardware
from annealfit.studies.report.figures import draw_feasibility, save_feasibility


def workloads_of(features, bits):
    return [Workload(size, 1, number) for size in features for number in bits]


@pytest.fixture(scope="module")
def rows():
    devices = [published_device(ideal_chip(name)) for name in ("P16", "Z15")]
    return list(study_hardware(devices, workloads_of([18, 36], [3, 5, 12, 15])))


def test_markers_are_filled_as_far_as_the_problem_fits(rows):
    sizes, shares = draw_feasibility(rows).axes
    for axes in (sizes, shares):
        markers = [line for line in axes.lines if len(line.get_xdata()) == 1]
        filling = {(line.get_marker(), line.get_xdata()[0]): line.get_fillstyle() for line in markers}
        assert [filling["o", bits] for bits in (3, 5, 12, 15)] == ["full", "full", "left", "none"]
        assert [filling["s", bits] for bits in (3, 5, 12, 15)] == ["full", "left", "none", "none"]


def test_the_curves_are_the_rows(rows):
    sizes, shares = draw_feasibility(rows).axes
    curve = next(line for line in sizes.lines if len(line.get_xdata()) == 4)
    assert list(curve.get_ydata()) == [57, 95, 228, 285]
    levels = {line.get_ydata()[0] for line in sizes.lines if list(line.get_xdata()) == [0, 1]}
    assert levels == {180, 232}
    share = next(line for line in shares.lines if len(line.get_xdata()) == 4)
    assert share.get_ydata()[0] == 100 * rows[0].resolutions["raw"].share_below[0.015]
    centred = [line for line in shares.lines if len(line.get_xdata()) == 4][1]
    assert centred.get_linestyle() == "--"
    assert centred.get_ydata()[0] == 100 * rows[0].resolutions["centred"].share_below[0.015]
    assert {text.get_text() for text in sizes.texts} == {"P16: 180", "Z15: 232"}


def test_a_single_point_and_a_wide_range_can_be_drawn(rows, tmp_path):
    save_feasibility(rows[:1], tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000
    device = published_device(ideal_chip("P16"))
    large = list(study_hardware([device], workloads_of([18, 512], [1, 20])))
    sizes, _ = (figure := draw_feasibility(large)).axes
    assert sizes.get_yscale() == "log"
    assert_readable(figure)


def test_texts_keep_apart(rows):
    assert_readable(draw_feasibility(rows))


def test_what_cannot_be_drawn_is_refused(rows, tmp_path):
    with pytest.raises(InvalidInputError, match="png, svg, pdf"):
        save_feasibility(rows, tmp_path / "figure")
    assert not list(tmp_path.iterdir())
