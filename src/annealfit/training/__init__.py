"""Training: objectives, the trainer, its policies, state, history and checkpoints."""

from annealfit.training.acceptance import ACCEPTANCES, Decision, Proposal
from annealfit.training.checkpoint import Checkpoint
from annealfit.training.method import METHODS, FilterMethod, Method
from annealfit.training.policies import (
    DAMPINGS,
    INITIALIZATIONS,
    PRECISION_POLICIES,
    RANGE_POLICIES,
    DampingPolicy,
    FixedDamping,
    LevenbergMarquardt,
    Outcome,
    PrecisionPolicy,
    RangePolicy,
)
from annealfit.training.state import HistoryRow, TrainingState
from annealfit.training.trainer import Iteration, Stopping, Trainer, TrainingResult, run

__all__ = [
    "ACCEPTANCES",
    "DAMPINGS",
    "INITIALIZATIONS",
    "METHODS",
    "PRECISION_POLICIES",
    "RANGE_POLICIES",
    "Checkpoint",
    "DampingPolicy",
    "Decision",
    "FilterMethod",
    "FixedDamping",
    "HistoryRow",
    "Iteration",
    "LevenbergMarquardt",
    "Method",
    "Outcome",
    "PrecisionPolicy",
    "Proposal",
    "RangePolicy",
    "Stopping",
    "Trainer",
    "TrainingResult",
    "TrainingState",
    "run",
]
