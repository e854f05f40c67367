"""Checkpoints: a training interrupted at any moment and resumed gives what it would have given, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annealfit.errors import CheckpointError
from annealfit.persistence import read_tensors, write_tensors
from annealfit.training.state import TrainingState

Row = dict[str, Any]
_COLUMN = "history."


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a training is saved, and the settings it belongs to."""

    path: Path
    every: int
    settings: Mapping[str, Any]  # JSON values; everything that decides the course of the training

    def save(self, state: TrainingState, history: list[Row]) -> None:
        """Write the state and the history, replacing the previous checkpoint in one step."""
        columns = {name: [row[name] for row in history] for name in (history[0] if history else ())}
        texts = {name: column for name, column in columns.items() if isinstance(column[0], str)}
        tensors = {"weights": state.weights, "ranges": state.ranges}
        tensors.update({_COLUMN + name: np.array(column) for name, column in columns.items() if name not in texts})
        manifest = {
            "iteration": state.iteration,
            "bits": state.bits,
            "columns": list(columns),
            "texts": texts,
            "settings": dict(self.settings),
        }
        write_tensors(self.path, "training checkpoint", tensors, manifest)

    def stored_settings(self) -> dict[str, Any]:
        """The settings of the training in the file."""
        return read_tensors(self.path, "training checkpoint")[1]["settings"]

    def load(self) -> tuple[TrainingState, list[Row]]:
        """The stored state and history, if they belong to a training with the same settings and data."""
        tensors, manifest = read_tensors(self.path, "training checkpoint")
        stored = manifest["settings"]
        differing = sorted(name for name in {*stored, *self.settings} if stored.get(name) != self.settings.get(name))
        if differing:
            name = differing[0]
            raise CheckpointError(
                f"{self.path} belongs to another training: {', '.join(differing)} differ "
                f"({name} was {stored.get(name)!r}, is {self.settings.get(name)!r}); "
                "restore the settings, or start anew with another checkpoint path"
            )
        texts = manifest["texts"]
        columns = [texts[name] if name in texts else tensors[_COLUMN + name].tolist() for name in manifest["columns"]]
        history = [dict(zip(manifest["columns"], values, strict=True)) for values in zip(*columns, strict=True)]
        state = TrainingState(
            iteration=manifest["iteration"],
            weights=tensors["weights"],
            ranges=tensors["ranges"],
            bits=manifest["bits"],
        )
        return state, history
