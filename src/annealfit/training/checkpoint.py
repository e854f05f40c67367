"""Checkpoints: a training interrupted at any moment and resumed gives what it would have given, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from annealfit._support.errors import CheckpointError
from annealfit._support.files import StrPath, read_tensors, remove_leftovers, write_tensors
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.problems.encoding import MAX_BITS
from annealfit.training.history import OPTIONAL_COLUMNS, HistoryRow
from annealfit.training.objectives import ONLY
from annealfit.training.state import Anchor, Best, Last, PartState, Previous, TrainingState

_KIND = "training checkpoint"
_COLUMN = "history."
_ALWAYS_FINITE = frozenset({"loss", "accuracy", "seconds"})
_NEEDED = frozenset({"iteration", "loss", "solved", "failures", "seconds"})  # to go on and to say how it ended
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
            remove_leftovers(self.path.parent)
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
        tensors = {} if state.cached_outputs is None else {"remembered": np.asarray(state.cached_outputs)}
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
        settings = {name: field.value for name, field in manifest["settings"].entries().items()}
        with settings_of(manifest["settings"]):
            upgraded = self.upgrade(settings)
        self._check_settings(upgraded)
        iteration = manifest["iteration"].whole(minimum=0)
        history = _read_history(tensors, manifest, iteration)
        stored_parts = manifest.get("parts")
        parts = {ONLY: manifest} if stored_parts is None else stored_parts.entries()
        state = TrainingState(
            iteration=iteration,
            parts={name: _read_part(tensors.under(_prefix(name)), stored) for name, stored in parts.items()},
            part=ONLY if stored_parts is None else manifest["part"].one_of(parts),
            cached_outputs=_numbers_of("remembered", tensors),
        )
        return replace(state, best=_best(manifest.get("best"), tensors, state)), history

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
        found["previous_weights"] = part.previous.weights
        if part.previous.cached_outputs is not None:
            found["previous_remembered"] = np.asarray(part.previous.cached_outputs)
    numbers = {"bits": part.bits, "last_rating": None if part.last is None else part.last.rating}
    if part.anchor is not None:
        found["anchor"], numbers["anchor_measure"] = part.anchor.weights, part.anchor.measure
    if part.damping is not None:
        numbers["damping"] = part.damping
    return {name: tensor for name, tensor in found.items() if tensor is not None}, numbers


def _read_history(tensors: TensorFields, manifest: Field, length: int) -> list[HistoryRow]:
    """The rows, as many as there were iterations; texts are in the manifest, numbers are tensors."""
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
            columns[name] = _numbers(name, column)
    if length and not columns.keys() >= _NEEDED:
        manifest["columns"].refuse(f"{', '.join(sorted(_NEEDED))} among them")
    if length and columns["iteration"] != list(range(1, length + 1)):
        manifest["columns"].refuse(f"a row for each of {length} iterations, in order")
    return cast(list[HistoryRow], [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])


def _read_part(own: TensorFields, stored: Field) -> PartState:
    weights = own.real("weights", (None, None))
    begun = "ranges" in own
    ranges = own.real("ranges", (None,), positive=True) if begun else None
    previous = last = anchor = None
    if "previous_weights" in own:
        before = own.real("previous_weights", weights.shape)
        previous = Previous(before, _numbers_of("previous_remembered", own))
    if "last_ranges" in own:
        kept = own.real("last_ranges", (None if ranges is None else len(ranges),), positive=True)
        last = Last(stored["last_rating"].number(), kept)
    if "anchor" in own:
        anchor = Anchor(own.real("anchor", weights.shape), stored["anchor_measure"].number())
    damping = stored.get("damping")
    return PartState(
        weights=weights,
        ranges=ranges,
        bits=stored["bits"].whole(minimum=1 if begun else 0, maximum=MAX_BITS),
        damping=None if damping is None else damping.number(minimum=0),
        previous=previous,
        last=last,
        anchor=anchor,
    )


def _numbers_of(name: str, tensors: TensorFields) -> np.ndarray | None:
    """What a point remembers: numbers, in a shape that only the objective knows."""
    return tensors.real(name, (None,) * tensors.tensors[name].ndim) if name in tensors else None


def _best(stored: Field | None, tensors: TensorFields, state: TrainingState) -> Best | None:
    if stored is None:
        return None
    fields = stored.items(3)
    if len(fields) != 3:
        stored.refuse("an iteration, an accuracy and a loss")
    parts = {
        name: tensors.real(_prefix(name) + "best_weights", weights.shape) for name, weights in state.all_weights.items()
    }
    merit = fields[1].number(), fields[2].number()
    return Best(fields[0].whole(minimum=1, maximum=state.iteration), merit, parts)


def stored_seed(path: Path) -> int:
    """The seed of the training in a file."""
    return read_tensors(path, _KIND)[1]["settings"]["random_state"].whole(minimum=0)


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
