"""Precision policies: how many bits an update has."""

from __future__ import annotations

from annealfit.training.outcome import Outcome


class PrecisionPolicy:
    """The same number of bits throughout, as in the paper. Other policies override one method or both."""

    def first(self, most: int) -> int:
        """The bits of the first iteration, where at most so many are allowed."""
        return most

    def following(self, bits: int, most: int, outcome: Outcome) -> int:
        """The bits of the next iteration, from those of this one and what came of it."""
        return bits


class AdaptivePrecision(PrecisionPolicy):
    """The paper's outlook: one bit first, another whenever fewer than half of the solves promise descent."""

    def first(self, most: int) -> int:
        """One."""
        return 1

    def following(self, bits: int, most: int, outcome: Outcome) -> int:
        """One more when stuck."""
        stuck = 2 * int((outcome.energies < 0).sum()) < int(outcome.solved.sum())
        return min(bits + 1, most) if stuck else bits


PRECISION_POLICIES: dict[str, PrecisionPolicy] = {"fixed": PrecisionPolicy(), "adaptive": AdaptivePrecision()}
