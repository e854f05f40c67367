"""What a run leaves: a record, stored as one file that is whole or absent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import FileFormatError
from annealfit.experiments.spec import RunSpec
from annealfit.persistence import read_tensors, replacing, write_tensors

_KIND = "run record"
_FOLDER = "records"
_ASKED = "asked"
_HISTORY = "history."


@dataclass(frozen=True, eq=False)
class Record:
    """What a method reached on a data set, or the error that ended it. Arrays of a failed run are empty."""

    method: str  # its name, as tables and pictures show it
    spec: RunSpec | None = None  # of a run that is stored, and found again by it
    error: str | None = None
    class_names: tuple[str, ...] = ()
    loss: float = float("nan")  # regularised, on the training data
    cross_entropy: float = float("nan")
    seconds: float = float("nan")  # of the training alone, without loading or compiling
    stop_reason: str = ""
    train: dict[str, float] = field(default_factory=dict)  # the six metrics of annealfit.metrics
    test: dict[str, float] = field(default_factory=dict)
    confusion: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))  # test; true class in rows
    history: dict[str, NDArray[Any]] = field(default_factory=dict)  # by column; empty where nothing iterates
    sample_images: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 0)))  # one test image per class
    sample_labels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sample_probabilities: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))  # (samples, C)
    environment: dict[str, str] = field(default_factory=dict)  # versions and machine, for the reader

    @property
    def run(self) -> RunSpec:
        """The spec of a stored run."""
        assert self.spec is not None, "a record that is stored has a spec"
        return self.spec

    @property
    def iterations(self) -> int:
        """How many there were; 0 for a method that does not iterate."""
        return len(self.history.get("iteration", ()))

    @property
    def access_seconds(self) -> float | None:
        """QPU access time of the training; None where no device took part."""
        column = self.history.get("access_seconds")
        return None if column is None else float(column.sum())

    def rows(self) -> list[dict[str, Any]]:
        """The history row by row."""
        columns = [column.tolist() for column in self.history.values()]
        return [dict(zip(self.history, values, strict=True)) for values in zip(*columns, strict=True)]

    @property
    def recall(self) -> NDArray[np.float64]:
        """Per-class recall on the test images."""
        totals = self.confusion.sum(axis=1)
        return self.confusion.diagonal() / np.maximum(totals, 1)


@dataclass(frozen=True)
class Store:
    """A folder of records, keyed by their specs' ids. Writing a record twice is harmless."""

    folder: Path

    def path(self, spec: RunSpec) -> Path:
        """Where the record of a run is."""
        return self.folder / _FOLDER / f"{spec.id}.safetensors"

    def save(self, record: Record) -> None:
        """Write the record in one step."""
        texts = {name: column.tolist() for name, column in record.history.items() if column.dtype.kind == "U"}
        numbers = {name: column for name, column in record.history.items() if name not in texts}
        tensors: dict[str, NDArray[Any]] = {_HISTORY + name: column for name, column in numbers.items()}
        tensors |= {name: getattr(record, name) for name in _ARRAYS}
        manifest = {
            "spec": record.run.to_json(),
            "columns": list(numbers),
            "texts": texts,
            **{name: getattr(record, name) for name in _VALUES},
        }
        write_tensors(self.path(record.run), _KIND, tensors, manifest)

    def load(self, spec: RunSpec) -> Record | None:
        """The record of a run, or None if there is none."""
        path = self.path(spec)
        return self.read(path) if path.exists() else None

    def is_done(self, spec: RunSpec) -> bool:
        """Whether a run has a whole record without an error; a damaged record is as good as none."""
        try:
            record = self.load(spec)
        except FileFormatError:
            return False
        return record is not None and record.error is None

    def ask(self, specs: Iterable[RunSpec]) -> None:
        """Note that these runs are wanted, so that a report can say which are missing."""
        wanted = json.dumps([spec.to_json() for spec in specs], sort_keys=True).encode()
        # A file per question, named by its content: asking twice, or two at once, does no harm.
        with replacing(self.folder / _ASKED / f"{hashlib.sha256(wanted).hexdigest()[:12]}.json") as file:
            file.write(wanted)

    def asked(self) -> set[RunSpec]:
        """The runs that were wanted, as far as it was noted: version 0.1.0 did not."""
        found: set[RunSpec] = set()
        for path in sorted((self.folder / _ASKED).glob("*.json")):
            try:
                found |= {RunSpec.from_json(fields) for fields in json.loads(path.read_bytes())}
            except (TypeError, ValueError) as error:  # of JSON, of its shape, or of a setting
                raise FileFormatError(f"{path} is not a list of runs: {error}; delete it to go on") from error
        return found

    def records(self) -> list[Record]:
        """All whole records, in the order of their ids."""
        return [self.read(path) for path in sorted((self.folder / _FOLDER).glob("*.safetensors"))]

    def of(self, specs: Iterable[RunSpec]) -> list[Record]:
        """The records of these runs that exist, in the order of the specs."""
        return [record for spec in specs if (record := self.load(spec)) is not None]

    def read(self, path: Path) -> Record:
        """The record in a file; a damaged or foreign one is refused."""
        tensors, manifest = read_tensors(path, _KIND)
        try:
            fields: dict[str, Any] = {name: manifest[name] for name in _VALUES if name in manifest}
            fields |= {name: tensors[name] for name in _ARRAYS}
            fields["spec"] = spec = RunSpec.from_json(manifest["spec"])
            fields.setdefault("method", spec.label)  # which 0.1.0 left to the spec
            fields["history"] = {name: tensors[_HISTORY + name] for name in manifest["columns"]}
            fields["history"] |= {name: np.array(column) for name, column in manifest.get("texts", {}).items()}
            fields["class_names"] = tuple(manifest["class_names"])
            return Record(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} is not a run record: {error}") from error


_ARRAYS = ("confusion", "sample_images", "sample_labels", "sample_probabilities")
_VALUES = (
    *("method", "error", "class_names", "loss", "cross_entropy", "seconds", "stop_reason"),
    *("train", "test", "environment"),
)
