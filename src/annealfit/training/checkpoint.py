"""Checkpoints: a training that is interrupted and resumed gives the result of an uninterrupted one, bit for bit.

A checkpoint holds weights, the state of the policies and the history; its size does not depend on the data.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from annealfit._support.errors import CheckpointError
from annealfit._support.files import StrPath, read_tensors, remove_leftovers, write_tensors
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit._support.settings import Settings
from annealfit.problems.encoding import MAX_BITS
from annealfit.training.state import OPTIONAL_COLUMNS, Anchor, Best, HistoryRow, NetworkState, TrainingState

_KIND = "training checkpoint"
_COLUMN = "history."
_ALWAYS_FINITE = frozenset({"loss", "accuracy", "seconds"})
_NEEDED = frozenset({"iteration", "loss", "solved", "failures", "seconds"})
_SUFFIX = ".safetensors"


@dataclass(frozen=True, repr=False)
class Checkpoint(Settings):
    """Where a training is saved, how often, and whether it is continued from there.

    Parameters
    ----------
    path : path
        A file, or a folder (one that exists, or a path without a suffix), which gets a file per training, so that
        those of a grid search do not collide.
    every : int
        Save after this many iterations, and when the training ends.
    resume : bool
        Continue from the file if it exists. Otherwise an existing file is refused, so that no training is overwritten
        by accident.

    """

    path: StrPath | None
    every: int = 50
    resume: bool = False


@dataclass(frozen=True)
class CheckpointFile:
    """The file of one training, with the settings that identify the training."""

    path: Path
    every: int
    settings: Mapping[str, Any]  # JSON values; everything that decides the course of the training
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] = dict  # settings that earlier versions wrote → today's

    def check_writable(self) -> None:
        """Raise before anything is computed if nothing can be saved there."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.path.parent)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be written: {error}; name a file in a folder that can be"
            ) from error

    def save(self, state: TrainingState | NetworkState, history: Sequence[HistoryRow]) -> None:
        """Write the state and the history, replacing the previous checkpoint in one step."""
        rows = cast(Sequence[dict[str, Any]], history)
        columns = {name: [row.get(name) for row in rows] for row in rows[:1] for name in row}
        texts = {name: column for name, column in columns.items() if isinstance(column[0], str)}
        tensors = {
            _COLUMN + name: np.array([np.nan if value is None else value for value in column])
            for name, column in columns.items()
            if name not in texts
        }
        manifest: dict[str, Any] = {"iteration": state.iteration}
        if isinstance(state, NetworkState):
            manifest |= {"part": state.layer, "parts": {}}
            for name, own in state.layers.items():
                more, manifest["parts"][name] = _stored(own)
                tensors |= {f"{name}.{key}": tensor for key, tensor in more.items()}
        else:
            more, numbers = _stored(state)
            tensors, manifest = tensors | more, manifest | numbers
        best, manifest["best"] = state.best, None
        if best is not None:
            named = best.weights if isinstance(best.weights, Mapping) else {"": best.weights}
            tensors |= {f"{name}{'.' if name else ''}best_weights": weights for name, weights in named.items()}
            manifest["best"] = [best.iteration, *best.merit]
        manifest |= {"columns": list(columns), "texts": texts, "settings": dict(self.settings)}
        write_tensors(self.path, _KIND, tensors, manifest)

    def load(self) -> tuple[TrainingState | NetworkState, list[HistoryRow]]:
        """Return the stored state and history, if they belong to a training with the same settings and data."""
        tensors, manifest = read_tensors(self.path, _KIND)
        settings = {name: field.value for name, field in manifest["settings"].entries().items()}
        with settings_of(manifest["settings"]):
            upgraded = self.upgrade(settings)
        self._check_settings(upgraded)
        iteration = manifest["iteration"].whole(minimum=0)
        history = _read_history(tensors, manifest, iteration)
        stored = manifest.get("parts")
        if stored is None:
            state = _read_state(tensors, manifest, iteration, begun=True)
            best = _read_best(manifest, iteration, lambda: tensors.real("best_weights", state.weights.shape))
            return replace(state, best=best), history
        layers = {}
        for name, own in stored.entries().items():
            found = tensors.under(f"{name}.")
            layers[name] = _read_state(found, own, iteration, begun="ranges" in found)
        best = _read_best(
            manifest,
            iteration,
            lambda: {n: tensors.real(f"{n}.best_weights", own.weights.shape) for n, own in layers.items()},
        )
        return NetworkState(iteration, layers, manifest["part"].one_of(layers), best), history

    def _check_settings(self, stored: Mapping[str, Any]) -> None:
        differing = sorted(name for name in {*stored, *self.settings} if stored.get(name) != self.settings.get(name))
        if differing:
            name = differing[0]
            # Of data there are only digests, which tell a reader nothing.
            values = (
                f" ({name} was {stored.get(name)!r}, is {self.settings.get(name)!r})" if " data" not in name else ""
            )
            raise CheckpointError(
                f"{self.path} belongs to another training: {', '.join(differing)} differ{values}; "
                "restore them, or start anew with another checkpoint path "
                "(a folder keeps the checkpoints of different trainings apart)"
            )


def _stored(state: TrainingState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and the numbers of a state."""
    tensors = {
        "weights": state.weights,
        "ranges": state.ranges,
        "last_ranges": state.last_ranges,
        "previous_weights": state.previous,
        "anchor": None if state.anchor is None else state.anchor.weights,
    }
    numbers = {"bits": state.bits, "last_rating": state.rating, "damping": state.damping}
    if state.anchor is not None:
        numbers["anchor_measure"] = state.anchor.measure
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}, numbers


def _read_state(tensors: TensorFields, stored: Field, iteration: int, *, begun: bool) -> TrainingState:
    """Read a state; a layer that has not begun, and only a layer, has no ranges."""
    weights = tensors.real("weights", (None, None))
    ranges = tensors.real("ranges", (None,), positive=True) if begun else None
    last = rating = anchor = previous = None
    if "last_ranges" in tensors:
        last = tensors.real("last_ranges", (None if ranges is None else len(ranges),), positive=True)
        rating = stored["last_rating"].number()
    if "anchor" in tensors:
        anchor = Anchor(tensors.real("anchor", weights.shape), stored["anchor_measure"].number())
    if "previous_weights" in tensors:
        previous = tensors.real("previous_weights", weights.shape)
    damping = stored.get("damping")
    return TrainingState(
        iteration,
        weights,
        ranges,
        stored["bits"].whole(minimum=1 if begun else 0, maximum=MAX_BITS),
        None if damping is None else damping.number(minimum=0),
        previous,
        rating,
        last,
        anchor,
    )


def _read_best(manifest: Field, iteration: int, read_weights: Callable[[], Any]) -> Best | None:
    stored = manifest.get("best")
    if stored is None:
        return None
    fields = stored.items(3)
    if len(fields) != 3:
        stored.refuse("an iteration, an accuracy and a loss")
    merit = fields[1].number(), fields[2].number()
    return Best(fields[0].whole(minimum=1, maximum=iteration), merit, read_weights())


def _read_history(tensors: TensorFields, manifest: Field, length: int) -> list[HistoryRow]:
    """Return the rows, one per iteration; texts are in the manifest, numbers are tensors."""
    texts = manifest["texts"].entries()
    columns: dict[str, list[Any]] = {}
    for name in (field.text() for field in manifest["columns"].items()):
        if name in texts:
            columns[name] = [text.text() for text in texts[name].items()]
            if len(columns[name]) != length:
                texts[name].refuse(f"{length} texts")
        else:
            needed = name in _ALWAYS_FINITE
            column = tensors.real(_COLUMN + name, (length,)) if needed else tensors.column(_COLUMN + name, length)
            optional = name in OPTIONAL_COLUMNS
            columns[name] = [None if optional and value != value else value for value in column.tolist()]
    if length and not columns.keys() >= _NEEDED:
        manifest["columns"].refuse(f"{', '.join(sorted(_NEEDED))} among them")
    if length and columns["iteration"] != list(range(1, length + 1)):
        manifest["columns"].refuse(f"a row for each of {length} iterations, in order")
    return cast(list[HistoryRow], [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])


def stored_seed(path: Path) -> int:
    """Return the seed of the training in a file."""
    return read_tensors(path, _KIND)[1]["settings"]["random_state"].whole(minimum=0)


def checkpoint_file(given: StrPath, settings: Mapping[str, Any]) -> Path:
    """Return the file of a training: the path, or in a folder a file named by a digest of the settings.

    >>> checkpoint_file("training.safetensors", {}).name
    'training.safetensors'
    >>> checkpoint_file("search/", {"bits": 2}) != checkpoint_file("search/", {"bits": 3})
    True
    """
    if not is_folder(given):
        return Path(given)
    text = json.dumps(settings, sort_keys=True, default=str)
    return Path(given) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}{_SUFFIX}"


def is_folder(given: StrPath) -> bool:
    """Whether a checkpoint path is a folder of checkpoints: it is one, ends in a separator, or has no suffix."""
    if os.fspath(given).endswith(("/", os.sep)):
        return True
    try:  # one look: another process may be making the folder
        return stat.S_ISDIR(os.stat(given).st_mode)
    except OSError:
        return not Path(given).suffix
