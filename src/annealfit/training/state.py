"""The state of a training between two iterations, and the history that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from annealfit._support.arrays import Array


class HistoryRow(TypedDict, total=False):
    """One iteration. Rows are plain dicts, so `pandas.DataFrame(history)` makes a table of them.

    A sampler may add columns (`Sampler.summarise`); those of a device and of blocks are listed at the end.
    """

    iteration: int  # from 1
    round: int  # of a network, from 1
    layer: str  # of a network: the layer that was trained, "conv1" … or "head"
    images: int  # of a network that begins with a part of the images: those that were used
    loss: float  # regularised, on the training data, after the iteration
    cross_entropy: float  # the loss without the penalty
    accuracy: float  # weighted share of the training rows that are classified correctly
    loss_change: float  # negative is good
    energy: float  # sum over the solved problems of the energies of the sampler's answers
    lower_bound: float | None  # no sampler can reach an energy below; None where the curvature is not convex
    gap: float | None  # energy − lower_bound
    solved: int  # problems that the sampler answered
    accepted: int  # problems whose update was applied
    multiple: float  # of the accepted updates; 0 where none was accepted
    range: float  # mean δ of the problems
    bits: int  # K
    damping: float | None  # of a damped curvature, in units of the mean of its diagonal
    failures: str  # why problems were not solved; usually empty
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
    failed_blocks: int  # blocks without an answer, which kept their value or took a rounded continuous minimum


# Columns that hold None where there is no number.
OPTIONAL_COLUMNS = frozenset({"lower_bound", "gap", "damping"})


@dataclass(frozen=True, eq=False)
class Anchor:
    """The weights at which the curvature was computed last, and the measure of that point."""

    weights: Array
    measure: float


@dataclass(frozen=True, eq=False)
class Best:
    """The weights with the best figures on the validation data so far; of a network, the weights of every layer."""

    iteration: int
    merit: tuple[float, float]  # accuracy and negative loss: larger is better
    weights: Any


def merit_of(figures: Mapping[str, float]) -> tuple[float, float]:
    """Return the figures to compare weights by: higher accuracy, or the same and a lower loss."""
    return float(figures.get("accuracy", 0.0)), -float(figures["loss"])


@dataclass(frozen=True, eq=False)
class TrainingState:
    """What the next iteration needs. It is replaced as a whole, so an interrupt never leaves half of one."""

    iteration: int
    weights: Array  # of a linear head (D, outputs), the bias in the last row
    ranges: Array | None = None  # kept by the range policy, one per problem (P,); None before the first iteration
    bits: int = 0
    damping: float | None = None
    previous: Array | None = None  # weights before the last step that was applied
    rating: float | None = None  # of the last iteration, by the range policy
    last_ranges: Array | None = None  # kept at the last iteration (P,)
    anchor: Anchor | None = None  # of a curvature that is not computed at every iteration
    best: Best | None = None  # with validation data

    def on_other_data(self) -> TrainingState:
        """Return the state without what belongs to the training data."""
        return replace(self, previous=None, anchor=None)


@dataclass(frozen=True, eq=False)
class NetworkState:
    """The state of a network: one `TrainingState` per layer."""

    iteration: int
    layers: Mapping[str, TrainingState]
    layer: str  # that was trained last
    best: Best | None = None

    @property
    def weights(self) -> dict[str, Array]:
        """The weights of every layer."""
        return {name: state.weights for name, state in self.layers.items()}
