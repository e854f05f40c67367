"""The history: a row per iteration, typed and explained."""

from __future__ import annotations

from typing import TypedDict


class HistoryRow(TypedDict, total=False):
    """What an iteration did. Rows are plain dicts, so `pandas.DataFrame(history)` makes a table of them.

    A sampler may add columns of its own (`Sampler.summarise`); those of a device are listed at the end.
    """

    iteration: int  # from 1
    round: int  # of a network, whose layers are trained in turn: from 1
    layer: str  # of a network: whose turn it was, "conv1" … or "head"
    loss: float  # regularised, on the training data, after the iteration
    cross_entropy: float  # the loss without the penalty
    accuracy: float  # weighted share of the training rows that are classified rightly
    loss_change: float  # of this iteration; negative is good
    energy: float  # sum over the solved problems of the energies of the sampler's answers
    lower_bound: float | None  # what no sampler could have got below; None where the curvature is not convex
    gap: float | None  # energy − lower_bound
    solved: int  # problems that the sampler answered
    accepted: int  # problems whose update was applied
    multiple: float  # by which the accepted updates were multiplied; 0 where none was
    range: float  # mean δ of the problems
    bits: int  # K
    damping: float | None  # of a curvature that is damped, in units of the mean of its diagonal
    failures: str  # why problems were not solved; empty in the usual case
    seconds: float  # since the training began
    # with validation data
    validation_loss: float  # without a penalty
    validation_cross_entropy: float
    validation_accuracy: float
    # with a device
    calls: int
    access_seconds: float
    chain_breaks: float  # mean share of broken chains in a read
    raw_energy: float  # sum of the energies before polishing
    fault_count: int
    faults: str
    # with blocks
    failed_blocks: int  # that took a rounded continuous minimum, or kept what they had, for want of an answer


# Columns that hold None instead of a number where there is none.
OPTIONAL_COLUMNS = frozenset({"lower_bound", "gap", "damping"})
