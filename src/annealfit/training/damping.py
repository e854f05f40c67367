"""Damping policies: how much is added to the diagonal of a curvature that is not to be trusted too far."""

from __future__ import annotations

from annealfit.training.outcome import Outcome

# How others do: docs/convolution.md.
FIRST_DAMPING = 0.1
RELIEF, CAUTION = 0.8, 4.0
LEAST, MOST = 1e-3, 1e3


class DampingPolicy:
    """No damping, for ever. Other policies override both methods.

    Damping is in units of the mean of a curvature's diagonal, so it means the same at every scale of the data.
    """

    def first(self) -> float | None:
        """The damping of the first step; None where there is none, and nothing is recorded."""
        return None

    def revise(self, damping: float | None, outcome: Outcome) -> float | None:
        """The damping of the next step, from that of this one and what came of it."""
        return damping


class FixedDamping(DampingPolicy):
    """The same damping for ever."""

    def __init__(self, damping: float) -> None:
        self.damping = damping

    def first(self) -> float:
        """The one there is."""
        return self.damping


class LevenbergMarquardt(DampingPolicy):
    """Less after a step that was taken, much more after one that was not.

    A Gauss-Newton curvature is that of a model in which nothing switches on or off. Damping keeps the problems
    convex where it is singular, and their answers short where it is wrong.
    """

    def first(self) -> float:
        """A tenth of the mean curvature."""
        return FIRST_DAMPING

    def revise(self, damping: float | None, outcome: Outcome) -> float | None:
        """Steps that nobody answered say nothing."""
        if damping is None or not outcome.solved.any():
            return damping
        return min(max(damping * (RELIEF if outcome.accepted.any() else CAUTION), LEAST), MOST)


DAMPINGS: dict[str, DampingPolicy] = {"adaptive": LevenbergMarquardt(), "none": DampingPolicy()}
