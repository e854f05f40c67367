"""What a run leaves: a record, stored as one file that is whole or absent."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import FileFormatError
from annealfit.experiments.spec import RunSpec
from annealfit.locks import remove_leftovers
from annealfit.persistence import read_tensors, replacing, write_tensors
from annealfit.schema import Field, TensorFields

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
                wanted = Field(json.loads(path.read_bytes()), source=str(path))
            except (ValueError, RecursionError) as error:
                raise FileFormatError(f"{path} is not a list of runs: {error}; delete it to go on") from error
            found |= {RunSpec.from_json(fields) for fields in wanted.items()}
        return found

    def records(self) -> list[Record]:
        """All whole records, in the order of their ids; of each other file a warning says what is wrong with it."""
        return self._whole(sorted((self.folder / _FOLDER).glob("*.safetensors")))

    def of(self, specs: Iterable[RunSpec]) -> list[Record]:
        """The whole records of these runs that exist, in the order of the specs."""
        return self._whole(path for path in map(self.path, specs) if path.exists())

    def _whole(self, paths: Iterable[Path]) -> list[Record]:
        found = []
        for path in paths:
            try:
                found.append(self.read(path))
            except FileFormatError as error:
                warnings.warn(f"left out: {error}", stacklevel=3)
        return found

    def remove_leftovers(self) -> None:
        """Remove records that a process was writing when it was killed."""
        remove_leftovers(self.folder / _FOLDER)

    def read(self, path: Path) -> Record:
        """The record in a file; a damaged or foreign one, or that of another run than its name says, is refused."""
        tensors, manifest = read_tensors(path, _KIND)
        spec = RunSpec.from_json(manifest["spec"])
        if path.stem != spec.id:
            raise FileFormatError(
                f"{path} is the record of another run, {spec.id}; remove it, or give it its name back"
            )
        return _read_record(spec, tensors, manifest)


_FIGURES = ("loss", "cross_entropy", "seconds")
_ARRAYS = ("confusion", "sample_images", "sample_labels", "sample_probabilities")
_VALUES = ("method", "error", "class_names", *_FIGURES, "stop_reason", "train", "test", "environment")


def _read_record(spec: RunSpec, tensors: TensorFields, manifest: Field) -> Record:
    """A record of a run that failed has no figures; one of a run that did not has them all, finite."""
    error, method = manifest.get("error"), manifest.get("method")
    names = tuple(name.text() for name in manifest["class_names"].items())
    done, count = error is None, len(names)
    samples = tensors.whole("sample_labels", (None,), maximum=max(count - 1, 0))
    pixels = tensors.tensors["sample_images"].shape[1:] if "sample_images" in tensors else ()
    return Record(
        method=spec.label if method is None else method.text(),  # which 0.1.0 left to the spec
        spec=spec,
        error=None if error is None else error.text(),
        class_names=names,
        **{name: manifest[name].number(finite=done) for name in _FIGURES},
        stop_reason=manifest["stop_reason"].text() if manifest.get("stop_reason") else "",
        train=_metrics(manifest["train"], done),
        test=_metrics(manifest["test"], done),
        confusion=tensors.whole("confusion", (count, count)),
        history=_read_columns(tensors, manifest),
        sample_images=tensors.real("sample_images", (len(samples), *pixels)),
        sample_labels=samples,
        sample_probabilities=tensors.real("sample_probabilities", (len(samples), count)),
        environment={name: value.text() for name, value in manifest["environment"].entries().items()},
    )


def _metrics(field: Field, done: bool) -> dict[str, float]:
    found = {name: value.number(minimum=-1, maximum=1) for name, value in field.entries().items()}
    if done and "accuracy" not in found:
        field.refuse("the metrics of a run that did not fail")
    return found


def _read_columns(tensors: TensorFields, manifest: Field) -> dict[str, NDArray[Any]]:
    """The history by column: all of one length; texts are in the manifest, numbers are tensors."""
    names = [name.text() for name in manifest["columns"].items()]
    shapes = [tensors.tensors[_HISTORY + name].shape for name in names if _HISTORY + name in tensors]
    length = shapes[0][0] if shapes and shapes[0] else 0
    columns = {name: tensors.column(_HISTORY + name, length) for name in names}
    if "loss" in columns:
        tensors.real(_HISTORY + "loss", (length,))
    texts = manifest.get("texts")
    for name, found in {} if texts is None else texts.entries().items():
        column = [text.text() for text in found.items()]
        if len(column) != length:
            found.refuse(f"{length} texts")
        columns[name] = np.array(column)
    return columns
