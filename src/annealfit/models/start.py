"""Where a `fit` starts from: its seed, its first weights, or the checkpoint that it resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import as_real
from annealfit._support.errors import CheckpointError, FileFormatError, InvalidInputError
from annealfit._support.files import remove_leftovers
from annealfit._support.randomness import seed_of
from annealfit.models.data import TrainingData
from annealfit.models.settings import initialization_of, training_settings, upgrade_settings
from annealfit.training import Checkpoint, HistoryRow, Trainer, TrainingState
from annealfit.training.checkpoint import checkpoint_file, is_folder, stored_seed
from annealfit.training.objectives import ONLY, LinearHead

if TYPE_CHECKING:
    from annealfit.models.base import AnnealedEstimator

Weights = NDArray[np.float64] | Mapping[str, NDArray[np.float64]]  # of an objective, or of each of its parts
Start = tuple[TrainingState, list[HistoryRow], Checkpoint | None]


@dataclass(frozen=True)
class CarriedOn:
    """What a `partial_fit` leaves to the next: ranges, bits and the seed, as long as the settings stay."""

    settings: dict[str, Any]
    seed: int
    state: TrainingState | None = None


def seed_of_training(estimator: AnnealedEstimator) -> int:
    """The seed of the training; one that was drawn afresh is found again in the checkpoint to resume."""
    given = estimator.checkpoint
    if estimator.resume and given is not None and not isinstance(estimator.random_state, Integral):
        if is_folder(given):
            raise InvalidInputError(
                f"resume=True with the folder of checkpoints {given} needs random_state to be a number, "
                "by which the training's own file is found"
            )
        if Path(given).exists():
            return stored_seed(Path(given))
    return seed_of(estimator.random_state)


def start_of_training(estimator: AnnealedEstimator, trainer: Trainer, data: TrainingData) -> Start:
    """The state and the history to go on from, and where to save them."""
    weights = estimator._first_weights(data, trainer.plan.seed)
    state = trainer.start(weights)
    if estimator.checkpoint is None:
        if estimator.resume:
            raise InvalidInputError("resume=True needs a checkpoint path to continue from")
        return state, [], None
    validation = None if data.held_out is None else data.held_out.digest()
    settings = training_settings(estimator, trainer.sampler, trainer.plan.seed, data.source.digest(), validation)
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
    remove_leftovers(path.parent)
    resumed, history = checkpoint.load()
    stored, wanted = (_shapes(some.all_weights) for some in (resumed, state))
    if stored != wanted:
        raise CheckpointError(
            f"{path} holds weights of shape {stored}, and this version trains {wanted}: "
            "0.1.0 had two outputs for two classes; start anew with another checkpoint path"
        )
    began, begins = resumed.parts[state.part].ranges, state.own.ranges
    if began is not None and begins is not None and began.shape != begins.shape:
        raise FileFormatError(f"{path}: its tensor ranges has the shape {began.shape}; expected {begins.shape}")
    trainer.sampler.restore_usage(cast(list[dict[str, Any]], history))
    return resumed, history, checkpoint


def check_warm_start(estimator: AnnealedEstimator, data: TrainingData, size: str, was: Any, now: Any) -> None:
    """Raise unless the data of a warm start have the classes and the size that the estimator was fitted on."""
    if not np.array_equal(estimator.classes_, data.classes) or was != now:
        raise InvalidInputError(
            f"warm_start=True continues a training on {size.format(was)} and the classes "
            f"{estimator.classes_.tolist()}; these data have {now} and {data.classes.tolist()}"
        )


def _shapes(weights: Mapping[str, NDArray[np.float64]]) -> Any:
    """The shape of the weights, or of those of each part."""
    shapes = {name: own.shape for name, own in weights.items()}
    return shapes.get(ONLY, shapes)


def initial_weights(estimator: AnnealedEstimator, head: LinearHead, seed: int) -> NDArray[np.float64]:
    """What the initialization gives, which may be anybody's, checked."""
    weights = as_real(initialization_of(estimator)(head, seed), "what the initialization gave", ndim=2)
    if weights.shape != (head.n_parameters, head.n_outputs):
        raise InvalidInputError(
            f"the initialization gave weights of shape {weights.shape}; expected {(head.n_parameters, head.n_outputs)}"
        )
    return weights


@contextmanager
def rollback_on_error(estimator: AnnealedEstimator) -> Iterator[None]:
    """A fit that fails leaves the estimator as it was: half a fit would spoil a good model."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
