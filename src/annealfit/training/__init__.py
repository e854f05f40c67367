"""Training: the loop, its state, its policies and its checkpoints."""

from annealfit.training.acceptance import ACCEPTANCES
from annealfit.training.checkpoint import Checkpoint
from annealfit.training.loop import Iteration, Plan, TrainingResult, initial_state, problems_at, train
from annealfit.training.precision import PRECISION_POLICIES
from annealfit.training.ranges import RANGE_POLICIES
from annealfit.training.state import INITIALIZATIONS, TrainingState
from annealfit.training.stopping import Stopping

__all__ = [
    "ACCEPTANCES",
    "INITIALIZATIONS",
    "PRECISION_POLICIES",
    "RANGE_POLICIES",
    "Checkpoint",
    "Iteration",
    "Plan",
    "Stopping",
    "TrainingResult",
    "TrainingState",
    "initial_state",
    "problems_at",
    "train",
]
