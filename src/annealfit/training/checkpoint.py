"""Checkpoints: a training interrupted at any moment and resumed gives what it would have given, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from annealfit.errors import CheckpointError
from annealfit.persistence import StrPath, read_tensors, write_tensors
from annealfit.training.history import OPTIONAL_COLUMNS, HistoryRow
from annealfit.training.state import Best, Last, Previous, TrainingState

_KIND = "training checkpoint"
_COLUMN = "history."
_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a training is saved, and the settings it belongs to."""

    path: Path
    every: int
    settings: Mapping[str, Any]  # JSON values; everything that decides the course of the training
    # Turns the settings of a file that an earlier version wrote into what this one would have written.
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] = dict

    def check_writable(self) -> None:
        """Raise before anything is computed, or paid for, if nothing can be saved there."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be written: {error}; name a file in a folder that can be"
            ) from error

    def save(self, state: TrainingState, history: Sequence[HistoryRow]) -> None:
        """Write the state and the history, replacing the previous checkpoint in one step."""
        rows = cast(Sequence[dict[str, Any]], history)
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        texts = {name: column for name, column in columns.items() if isinstance(column[0], str)}
        tensors = {"weights": state.weights, "ranges": state.ranges}
        for name, column in columns.items():
            if name not in texts:
                tensors[_COLUMN + name] = np.array([np.nan if value is None else value for value in column])
        best = None
        if state.best is not None:
            tensors["best_weights"] = state.best.weights
            best = [state.best.iteration, *state.best.merit]
        last = None
        if state.last is not None:
            tensors["last_ranges"] = state.last.ranges
            last = state.last.rating
        if state.previous is not None:
            tensors["previous_weights"] = state.previous.weights
        memories = {"remembered": state.remembered}
        memories["previous_remembered"] = None if state.previous is None else state.previous.remembered
        tensors |= {name: memory for name, memory in memories.items() if memory is not None}
        manifest = {
            "iteration": state.iteration,
            "last_rating": last,
            "bits": state.bits,
            "best": best,
            "columns": list(columns),
            "texts": texts,
            "settings": dict(self.settings),
        }
        write_tensors(self.path, _KIND, tensors, manifest)

    def load(self) -> tuple[TrainingState, list[HistoryRow]]:
        """The stored state and history, if they belong to a training with the same settings and data."""
        tensors, manifest = read_tensors(self.path, _KIND)
        self._check_settings(self.upgrade(manifest["settings"]))
        texts = manifest["texts"]
        columns = [
            texts[name] if name in texts else _numbers(name, tensors[_COLUMN + name]) for name in manifest["columns"]
        ]
        history = [dict(zip(manifest["columns"], values, strict=True)) for values in zip(*columns, strict=True)]
        state = TrainingState(
            iteration=manifest["iteration"],
            weights=tensors["weights"],
            ranges=tensors["ranges"],
            bits=manifest["bits"],
            best=_best(manifest.get("best"), tensors),
            remembered=tensors.get("remembered"),
            previous=_previous(tensors),
            last=None if "last_ranges" not in tensors else Last(manifest["last_rating"], tensors["last_ranges"]),
        )
        return state, cast(list[HistoryRow], history)

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


def _best(stored: Sequence[Any] | None, tensors: Mapping[str, Any]) -> Best | None:
    if stored is None:
        return None
    iteration, *merit = stored
    return Best(iteration, (merit[0], merit[1]), tensors["best_weights"])


def _previous(tensors: Mapping[str, Any]) -> Previous | None:
    if "previous_weights" not in tensors:
        return None
    return Previous(tensors["previous_weights"], tensors.get("previous_remembered"))


def stored_settings(path: Path) -> dict[str, Any]:
    """The settings of the training in a file."""
    return read_tensors(path, _KIND)[1]["settings"]


def checkpoint_file(given: StrPath, settings: Mapping[str, Any]) -> Path:
    """The file of a training with these settings: the path itself, or one of its own where the path is a folder.

    A path is a folder if it is one, ends in a separator, or is not there and has no suffix. Trainings that differ in
    anything that matters, as those of a grid search do, have different files in it.

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
    """Whether a checkpoint path means a folder of checkpoints."""
    path = Path(given)
    return path.is_dir() or os.fspath(given).endswith(("/", os.sep)) or (not path.exists() and not path.suffix)


def _numbers(name: str, column: np.ndarray) -> list[Any]:
    values = column.tolist()
    if name in OPTIONAL_COLUMNS:
        return [None if value != value else value for value in values]
    return values
