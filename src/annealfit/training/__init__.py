"""Training: the loop, the step it repeats, the policies it asks, its state, its history and its checkpoints."""

from annealfit.training.acceptance import ACCEPTANCES, Decision, Proposal
from annealfit.training.checkpoint import Checkpoint
from annealfit.training.damping import DAMPINGS, DampingPolicy, FixedDamping, LevenbergMarquardt
from annealfit.training.history import HistoryRow
from annealfit.training.initialization import INITIALIZATIONS
from annealfit.training.loop import Iteration, Trainer, TrainingResult
from annealfit.training.outcome import Outcome
from annealfit.training.precision import PRECISION_POLICIES, PrecisionPolicy
from annealfit.training.ranges import RANGE_POLICIES, RangePolicy
from annealfit.training.state import PartState, TrainingState
from annealfit.training.step import Plan
from annealfit.training.stopping import Stopping

__all__ = [
    "ACCEPTANCES",
    "DAMPINGS",
    "INITIALIZATIONS",
    "PRECISION_POLICIES",
    "RANGE_POLICIES",
    "Checkpoint",
    "DampingPolicy",
    "Decision",
    "FixedDamping",
    "HistoryRow",
    "Iteration",
    "LevenbergMarquardt",
    "Outcome",
    "PartState",
    "Plan",
    "PrecisionPolicy",
    "Proposal",
    "RangePolicy",
    "Stopping",
    "Trainer",
    "TrainingResult",
    "TrainingState",
]
