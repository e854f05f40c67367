"""What every picture has to keep: no two texts of it cover each other, and its numbers are plain."""

from collections.abc import Iterator
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text


def visible_texts(figure: Figure) -> list[Text]:
    """All texts that a reader sees: titles, labels, ticks, legends, annotations."""
    figure.draw_without_rendering()
    unseen = {
        label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in _unseen_labels(axes, axis)
    }
    return [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in unseen]


def _unseen_labels(axes: Axes, axis: Axis) -> Iterator[Text]:
    """Labels of ticks outside the limits, which matplotlib keeps, and of axes that are not shown."""
    low, high = sorted(axis.get_view_interval())
    margin = 1e-9 * (high - low)
    for tick in (*axis.majorTicks, *axis.minorTicks):
        if not (axes.axison and axis.get_visible() and low - margin <= tick.get_loc() <= high + margin):
            yield from (tick.label1, tick.label2)


def overlapping_texts(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other."""
    boxes = [(text.get_text(), Text.get_window_extent(text).shrunk(0.98, 0.9)) for text in visible_texts(figure)]
    return [(one, other) for (one, first), (other, second) in combinations(boxes, 2) if first.overlaps(second)]


def clipped_texts(figure: Figure) -> list[str]:
    """Texts that stand partly outside the figure."""
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in visible_texts(figure)]
    width, height = figure.bbox.size
    return [text for text, box in boxes if min(*box.min, width - box.x1, height - box.y1) < -1]


def assert_readable(figure: Figure) -> None:
    """No text covers another or is cut off, and no tick is written as a power in mathematical notation."""
    assert overlapping_texts(figure) == []
    assert clipped_texts(figure) == []
    assert [text.get_text() for text in visible_texts(figure) if "mathdefault" in text.get_text()] == []
