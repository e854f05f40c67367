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
from annealfit._support.schema import Field, TensorFields, read_history, settings_of, stored_history
from annealfit._support.settings import Settings
from annealfit.problems.encoding import MAX_BITS
from annealfit.training.state import OPTIONAL_COLUMNS, Anchor, Best, HistoryRow, NetworkState, TrainingState

_KIND = "training checkpoint"
_NEEDED = frozenset({"iteration", "loss", "solved", "failures", "seconds"})
_SUFFIX = ".safetensors"
_ONLY = ""  # the name of the layer of a training that is no network's
_TENSORS = {"weights": "weights", "ranges": "ranges", "last_ranges": "last_ranges", "previous_weights": "previous"}


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
        columns = {
            name: np.array([np.nan if row.get(name) is None else row[name] for row in rows])
            for name in (rows[0] if rows else ())
        }
        tensors, described = stored_history(columns)
        is_network, best = isinstance(state, NetworkState), state.best
        layers = state.layers if isinstance(state, NetworkState) else {_ONLY: state}
        numbers: dict[str, Any] = {}
        for name, layer in layers.items():
            numbers[name] = {"bits": layer.bits, "last_rating": layer.rating, "damping": layer.damping}
            own = {key: getattr(layer, attribute) for key, attribute in _TENSORS.items()}
            if layer.anchor is not None:
                own["anchor"], numbers[name]["anchor_measure"] = layer.anchor.weights, layer.anchor.measure
            if best is not None:
                own["best_weights"] = best.weights[name] if is_network else best.weights
            tensors |= {_prefix(name) + key: tensor for key, tensor in own.items() if tensor is not None}
        manifest = {
            "iteration": state.iteration,
            "best": None if best is None else [best.iteration, *best.merit],
            **({"part": state.layer, "parts": numbers} if isinstance(state, NetworkState) else numbers[_ONLY]),
            **described,
            "settings": dict(self.settings),
        }
        write_tensors(self.path, _KIND, tensors, manifest)

    def load(self) -> tuple[TrainingState | NetworkState, list[HistoryRow]]:
        """Return the stored state and history, if they belong to a training with the same settings and data."""
        tensors, manifest = read_tensors(self.path, _KIND)
        settings = {name: field.value for name, field in manifest["settings"].entries().items()}
        with settings_of(manifest["settings"]):
            upgraded = self.upgrade(settings)
        self._check_settings(upgraded)
        iteration, parts = manifest["iteration"].whole(minimum=0), manifest.get("parts")
        history = _read_rows(tensors, manifest, iteration)
        layers = {}
        for name, own in ({_ONLY: manifest} if parts is None else parts.entries()).items():
            found = tensors.under(_prefix(name))
            layers[name] = _read_state(found, own, iteration, begun=parts is None or "ranges" in found)
        best, stored = None, manifest.get("best")
        if stored is not None:
            fields = stored.items(3)
            if len(fields) != 3:
                stored.refuse("an iteration, an accuracy and a loss")
            weights = {
                name: tensors.under(_prefix(name)).real("best_weights", layer.weights.shape)
                for name, layer in layers.items()
            }
            merit = fields[1].number(), fields[2].number()
            number = fields[0].whole(minimum=1, maximum=iteration)
            best = Best(number, merit, weights[_ONLY] if parts is None else weights)
        if parts is None:
            return replace(layers[_ONLY], best=best), history
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


def _prefix(layer: str) -> str:
    """Return what the names of a layer's tensors begin with."""
    return f"{layer}." if layer else ""


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


def _read_rows(tensors: TensorFields, manifest: Field, length: int) -> list[HistoryRow]:
    """Return the history, a row for each iteration."""
    found = read_history(tensors, manifest, length, finite=("loss", "accuracy", "seconds"))
    columns: dict[str, list[Any]] = {name: column.tolist() for name, column in found.items()}
    for name in OPTIONAL_COLUMNS & columns.keys():
        columns[name] = [None if value != value else value for value in columns[name]]
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
