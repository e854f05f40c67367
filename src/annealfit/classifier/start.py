"""Where a `fit` starts from: its seed, its first weights, or the checkpoint that it resumes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit.classifier.data import TrainingData
from annealfit.classifier.settings import initialization_of, training_settings, upgrade_settings
from annealfit.errors import CheckpointError, InvalidInputError
from annealfit.metric import as_real
from annealfit.objectives import LinearHead
from annealfit.randomness import seed_of
from annealfit.training import Checkpoint, HistoryRow, Trainer, TrainingState
from annealfit.training.checkpoint import checkpoint_file, is_folder, stored_settings

if TYPE_CHECKING:
    from annealfit.classifier.estimator import AnnealedClassifier

Start = tuple[TrainingState, list[HistoryRow], Checkpoint | None]


@dataclass(frozen=True)
class CarriedOn:
    """What a `partial_fit` leaves to the next: ranges, bits and the seed, as long as the settings stay."""

    settings: dict[str, Any]
    seed: int
    state: TrainingState | None = None


def seed_of_training(estimator: AnnealedClassifier) -> int:
    """The seed of the training; one that was drawn afresh is found again in the checkpoint to resume."""
    given = estimator.checkpoint
    if estimator.resume and given is not None and not isinstance(estimator.random_state, Integral):
        if is_folder(given):
            raise InvalidInputError(
                f"resume=True with the folder of checkpoints {given} needs random_state to be a number, "
                "by which the training's own file is found"
            )
        if Path(given).exists():
            return int(stored_settings(Path(given))["random_state"])
    return seed_of(estimator.random_state)


def start_of_training(estimator: AnnealedClassifier, trainer: Trainer, data: TrainingData) -> Start:
    """The state and the history to go on from, and where to save them."""
    weights = _first_weights(estimator, data, trainer.plan.seed)
    state = trainer.start(weights)
    if estimator.checkpoint is None:
        if estimator.resume:
            raise InvalidInputError("resume=True needs a checkpoint path to continue from")
        return state, [], None
    validation = None if data.validation is None else data.validation.rows.digest()
    settings = training_settings(estimator, trainer.sampler, trainer.plan.seed, data.rows.digest(), validation)
    path = checkpoint_file(estimator.checkpoint, settings)
    upgrade = upgrade_settings(estimator, trainer.sampler)
    checkpoint = Checkpoint(path, int(estimator.checkpoint_every), settings, upgrade)
    if not path.exists():
        checkpoint.check_writable()
        return state, [], checkpoint
    if not estimator.resume:
        other = (
            "another folder"
            if is_folder(estimator.checkpoint)
            else ("a folder, which keeps the checkpoints of different trainings apart")
        )
        raise CheckpointError(
            f"{path} exists; pass resume=True to continue it, remove it to start anew, or name {other}"
        )
    resumed, history = checkpoint.load()
    if resumed.weights.shape != weights.shape:
        raise CheckpointError(
            f"{path} holds weights of shape {resumed.weights.shape}, and this version trains {weights.shape}: "
            "0.1.0 had two outputs for two classes; start anew with another checkpoint path"
        )
    return resumed, history, checkpoint


def weights_of(estimator: AnnealedClassifier) -> NDArray[np.float64]:
    """The fitted weights (D, outputs), the biases in the last row."""
    return np.vstack([estimator.coef_.T, estimator.intercept_])


def _first_weights(estimator: AnnealedClassifier, data: TrainingData, seed: int) -> NDArray[np.float64]:
    if estimator.warm_start and hasattr(estimator, "coef_"):
        n_features = data.rows.n_parameters - 1
        if not np.array_equal(estimator.classes_, data.classes) or estimator.coef_.shape[1] != n_features:
            raise InvalidInputError(
                f"warm_start=True continues a training on {estimator.coef_.shape[1]} features and the classes "
                f"{estimator.classes_.tolist()}; these data have {n_features} and {data.classes.tolist()}"
            )
        return weights_of(estimator)
    return initial_weights(estimator, data.objective, seed)


def initial_weights(estimator: AnnealedClassifier, head: LinearHead, seed: int) -> NDArray[np.float64]:
    """What the initialization gives, which may be anybody's, checked."""
    weights = as_real(initialization_of(estimator)(head, seed), "what the initialization gave", ndim=2)
    if weights.shape != (head.n_parameters, head.n_outputs):
        raise InvalidInputError(
            f"the initialization gave weights of shape {weights.shape}; expected {(head.n_parameters, head.n_outputs)}"
        )
    return weights


@contextmanager
def unchanged_on_error(estimator: AnnealedClassifier) -> Iterator[None]:
    """A fit that fails leaves the estimator as it was: half a fit would spoil a good model."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
