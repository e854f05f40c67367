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
from annealfit.objectives import ONLY
from annealfit.persistence import StrPath, read_tensors, write_tensors
from annealfit.training.history import OPTIONAL_COLUMNS, HistoryRow
from annealfit.training.state import Anchor, Best, Last, PartState, Previous, TrainingState

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
        tensors = {} if state.remembered is None else {"remembered": state.remembered}
        for name, column in columns.items():
            if name not in texts:
                tensors[_COLUMN + name] = np.array([np.nan if value is None else value for value in column])
        parts = {}
        for name, part in state.parts.items():
            more, parts[name] = _store_part(part)
            tensors |= {_prefix(name) + key: tensor for key, tensor in more.items()}
        best = None
        if state.best is not None:
            tensors |= {_prefix(name) + "best_weights": weights for name, weights in state.best.parts.items()}
            best = [state.best.iteration, *state.best.merit]
        manifest = {
            "iteration": state.iteration,
            **(parts.pop(ONLY) if ONLY in parts else {"part": state.part, "parts": parts}),
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
        parts = manifest.get("parts", {ONLY: manifest})
        state = TrainingState(
            iteration=manifest["iteration"],
            parts={name: _read_part(_prefix(name), tensors, stored) for name, stored in parts.items()},
            part=manifest.get("part", ONLY),
            best=_best(manifest.get("best"), tensors, list(parts)),
            remembered=tensors.get("remembered"),
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


def _prefix(part: str) -> str:
    """Before the names of a part's tensors; an objective of one part needs none."""
    return f"{part}." if part else ""


def _store_part(part: PartState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors and the numbers of a part."""
    found = {"weights": part.weights, "ranges": part.ranges}
    if part.last is not None:
        found["last_ranges"] = part.last.ranges
    if part.previous is not None:
        found |= {"previous_weights": part.previous.weights, "previous_remembered": part.previous.remembered}
    numbers = {"bits": part.bits, "last_rating": None if part.last is None else part.last.rating}
    if part.anchor is not None:
        found["anchor"], numbers["anchor_measure"] = part.anchor.weights, part.anchor.measure
    if part.damping is not None:
        numbers["damping"] = part.damping
    return {name: tensor for name, tensor in found.items() if tensor is not None}, numbers


def _read_part(prefix: str, tensors: Mapping[str, np.ndarray], stored: Mapping[str, Any]) -> PartState:
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    previous = None
    if "previous_weights" in own:
        previous = Previous(own["previous_weights"], own.get("previous_remembered"))
    return PartState(
        weights=own["weights"],
        ranges=own.get("ranges"),
        bits=stored["bits"],
        damping=stored.get("damping"),
        previous=previous,
        last=Last(stored["last_rating"], own["last_ranges"]) if "last_ranges" in own else None,
        anchor=Anchor(own["anchor"], stored["anchor_measure"]) if "anchor" in own else None,
    )


def _best(stored: Sequence[Any] | None, tensors: Mapping[str, Any], parts: Sequence[str]) -> Best | None:
    if stored is None:
        return None
    iteration, *merit = stored
    return Best(iteration, (merit[0], merit[1]), {name: tensors[_prefix(name) + "best_weights"] for name in parts})


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
