"""What several tables compare: paired test accuracies, and updates that raise the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import ttest_rel

from annealfit.studies.paper_tables import BITS, OUR_BITS
from annealfit.studies.report.cells import Group


def contender_bits(preset: str | None) -> int | None:
    """The bits that stand for a preset: the most it has."""
    return None if preset is None else max(OUR_BITS if preset == "annealfit" else BITS)


def paired_accuracies(group: Group, baseline: Group) -> tuple[list[float], list[float]]:
    """Test accuracies of both on the seeds they share."""
    theirs = {record.run.seed: record.test["accuracy"] for record in baseline.records}
    shared = [record for record in group.records if record.run.seed in theirs]
    return [record.test["accuracy"] for record in shared], [theirs[record.run.seed] for record in shared]


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The p of the one-sided paired t-test that ours are greater; NaN where it cannot be had.

    >>> round(paired_p([0.8, 0.9, 0.85], [0.7, 0.75, 0.8]), 3)
    0.037
    """
    gains = np.subtract(ours, theirs)
    if len(gains) < 2 or np.ptp(gains) < 1e-9:  # the test divides by the spread of the gains; rounding is none
        return math.nan
    return float(ttest_rel(ours, theirs, alternative="greater").pvalue)


def raising_shares(group: Group) -> list[float]:
    """The share of loss-raising updates of each run that recorded them."""
    changes = [record.history["loss_change"] for record in group.records if "loss_change" in record.history]
    return [float(np.mean(change > 0)) for change in changes if len(change)]


PAPER_SIGNIFICANT = ("mnist", "fashion_mnist")
PAPER_RAISING_PERCENT = (43.0, 46.0)


def p_text(p: float) -> str:
    """A p-value as a reader wants it; a dash where there is none."""
    if math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
