"""Runs and what they leave on disk: a `RunSpec` says what to run, a `Record` the result, a `Store` keeps records.

The folder of a single training (`annealfit train --out`) is written by `save_run`. Every file is whole or absent.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, choose, require
from annealfit._support.files import (
    read_json,
    read_tensors,
    remove_leftovers,
    replacing,
    working_in,
    write_json,
    write_tensors,
)
from annealfit._support.schema import Field, TensorFields, read_history, settings_of, stored_history

if TYPE_CHECKING:
    from annealfit.models import AnnealedClassifier
    from annealfit.studies.execute import TrainingRun

RUN_PRESETS = ("literal", "matched", "annealfit")
IMAGES = ("published", "stated")  # as of `load_dataset`
CLASSICAL = "classical"  # the paper's SGD
OPTIMUM = "optimum"  # logistic regression at the same λ
# The paper's network: its head alone, its filters trained by QUBO, its filters trained by Adam.
FROZEN_NETWORK, TRAINED_NETWORK, ADAM_NETWORK = "network_frozen", "network", "network_adam"
NETWORK_METHODS = (FROZEN_NETWORK, TRAINED_NETWORK, ADAM_NETWORK)
ANNEALED, COUNTERPART = "annealed", "counterpart"  # of other models that annealing trains (see `family`)
MODELS = (
    *("Softmax, QUBO updates", "Least squares", "Support vectors", "Boosting"),
    *("Sparse coding", "Matrix factorisation", "Boltzmann machine"),
)
METHODS_OF_RUNS = (CLASSICAL, OPTIMUM, "qubo", *NETWORK_METHODS, ANNEALED, COUNTERPART)
_NO_NAME, _LONGEST_NAME = re.compile(r"[^A-Za-z0-9_-]+"), 64  # for file names: a data set may be a path, or anything


def printable(text: str) -> str:
    r"""Return a text with spaces in place of control characters.

    >>> printable("a\x1b[31mb")
    'a [31mb'
    """
    return "".join(character if character.isprintable() else " " for character in text)


@dataclass(frozen=True)
class RunSpec:
    """One method on one data set with one seed: everything that decides the result of a run.

    `method` is one of METHODS_OF_RUNS; `preset` to `step` apply to "qubo" only, where None takes the preset's value.
    `images` is as of `load_dataset`; with "published" the features are those of the published filters. The fields after
    it are of other readings of the paper (see `evidence`), `model` is one of MODELS.

    >>> spec = RunSpec("digits", "qubo", seed=42, preset="matched", bits=20)
    >>> spec.label, spec == RunSpec.from_json(spec.to_json())
    ('qubo_20', True)
    """

    dataset: str
    method: str
    seed: int
    preset: str | None = None
    bits: int | None = None
    num_sweeps: int | None = None
    max_iter: int | None = None
    update_range: float | None = None
    step: float | None = None
    images: str = "stated"
    resize: str | None = None
    transposed: bool = False
    bank: int | None = None  # seed of a filter bank in place of the published one
    model: str | None = None

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS_OF_RUNS)
        choose("images", self.images, IMAGES)
        if self.method in (ANNEALED, COUNTERPART) or self.model is not None:
            choose("model", self.model, MODELS)
        if self.method == "qubo":
            choose("preset", self.preset, RUN_PRESETS)
            if self.bits is None:
                raise InvalidInputError("a QUBO run needs its number of bits")

    @property
    def label(self) -> str:
        """Name of the method in the paper's tables: classical, qubo_5 … qubo_20."""
        return f"qubo_{self.bits}" if self.method == "qubo" else self.method

    @property
    def source(self) -> str:
        """The data set whose files the run needs: the published images of the row called MNIST are the digits."""
        return "digits" if (self.dataset, self.images) == ("mnist", "published") else self.dataset

    @property
    def baseline(self) -> RunSpec:
        """The paper's baseline on the same images and filters."""
        what = {name: getattr(self, name) for name in ("images", "resize", "transposed", "bank")}
        return RunSpec(self.dataset, CLASSICAL, self.seed, **what)

    @property
    def is_reading(self) -> bool:
        """Whether images or filters are neither the published nor the stated ones (see `evidence`)."""
        return self.resize is not None or self.transposed or self.bank is not None

    @property
    def id(self) -> str:
        """File name of the record: readable at the front, a digest of all fields at the end."""
        digest = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]
        words = [self.dataset, self.label, self.preset, self.images, self.model]
        names = [_NO_NAME.sub("_", word)[:_LONGEST_NAME] for word in words if word not in (None, "stated")]
        return f"{'-'.join(names)}-seed{self.seed}-{digest}"

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from their default: a field added later does not change old ids."""
        return {entry.name: value for entry in fields(self) if (value := getattr(self, entry.name)) != entry.default}

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Return the spec that `to_json` described; fields of a file are checked."""
        found = Field.of(document)
        for name, entry in found.entries().items():
            match cls.__annotations__.get(name, "").removesuffix(" | None"):
                case "str":
                    entry.text()
                case "float":
                    entry.number(minimum=0)
                case "int":
                    entry.whole(minimum=0 if name in ("seed", "bank") else 1)
                case "bool":
                    entry.flag()
                case _:
                    entry.refuse("no such setting of a run")
        with settings_of(found):
            return cls(**{name: entry.value for name, entry in found.entries().items()})

    def classifier(self) -> AnnealedClassifier:
        """Return the classifier of a QUBO run."""
        from annealfit.models import AnnealedClassifier  # here: a run can be named without scikit-learn
        from annealfit.samplers import SimulatedAnnealer

        assert self.bits is not None
        sweeps = self.num_sweeps or 100
        if self.preset == "annealfit":
            classifier = AnnealedClassifier(bits=self.bits, sampler=SimulatedAnnealer(sweeps))
        else:
            classifier = AnnealedClassifier.from_paper(self.bits, preset=str(self.preset), num_sweeps=sweeps)
        changes = {"max_iter": self.max_iter, "method__update_range": self.update_range, "method__step": self.step}
        classifier.set_params(**{name: value for name, value in changes.items() if value is not None})
        return classifier.set_params(random_state=self.seed)


@dataclass(frozen=True, eq=False)
class Record:
    """What a method reached on a data set, or the error that ended it. Arrays of a failed run are empty."""

    method: str  # its name in tables and figures
    spec: RunSpec | None = None  # None where the record is not stored
    error: str | None = None
    class_names: tuple[str, ...] = ()
    loss: float = float("nan")  # regularised, on the training data
    cross_entropy: float = float("nan")
    seconds: float = float("nan")  # of the training alone, without loading or compiling
    stop_reason: str = ""
    train: dict[str, float] = field(default_factory=dict)  # the six metrics of annealfit.models.metrics
    test: dict[str, float] = field(default_factory=dict)
    confusion: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))  # test; true class in rows
    history: dict[str, NDArray[Any]] = field(default_factory=dict)  # by column; empty without iterations
    sample_images: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 0)))  # one test image per class
    sample_labels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # (samples,)
    sample_probabilities: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))  # (samples, C)
    environment: dict[str, str] = field(default_factory=dict)  # versions and machine
    counts: dict[str, int] = field(default_factory=dict)  # of a model of `family`: problems solved, their variables

    @property
    def run(self) -> RunSpec:
        """The spec of a stored record."""
        assert self.spec is not None, "a record that is stored has a spec"
        return self.spec

    @property
    def iterations(self) -> int:
        """Length of the history; 0 for a method without iterations."""
        return len(self.history.get("iteration", ()))

    @property
    def access_seconds(self) -> float | None:
        """QPU access time of the training; None without a device."""
        column = self.history.get("access_seconds")
        return None if column is None else float(column.sum())

    @property
    def recall(self) -> NDArray[np.float64]:
        """Per-class recall on the test data, (C,)."""
        return self.confusion.diagonal() / np.maximum(self.confusion.sum(axis=1), 1)


_KIND = "run record"
_FIGURES = ("loss", "cross_entropy", "seconds")
_ARRAYS = ("confusion", "sample_images", "sample_labels", "sample_probabilities")
_VALUES = ("method", "error", "class_names", *_FIGURES, "stop_reason", "train", "test", "environment", "counts")


@dataclass(frozen=True)
class Store:
    """A folder of records, one file per run, and lists of the runs that were asked for."""

    folder: Path

    def path(self, spec: RunSpec) -> Path:
        """File of the record of a run."""
        return self.folder / "records" / f"{spec.id}.safetensors"

    def save(self, record: Record) -> None:
        """Write the record; writing it twice does no harm."""
        tensors, manifest = stored_history(record.history)
        tensors |= {name: getattr(record, name) for name in _ARRAYS}
        manifest["spec"] = record.run.to_json()
        manifest |= {name: getattr(record, name) for name in _VALUES}
        write_tensors(self.path(record.run), _KIND, tensors, manifest)

    def read(self, path: Path) -> Record:
        """Return the record in a file; a damaged file, or one of another run than its name says, raises."""
        tensors, manifest = read_tensors(path, _KIND)
        spec = RunSpec.from_json(manifest["spec"])
        if path.stem == spec.id:
            return _read_record(spec, tensors, manifest)
        raise FileFormatError(f"{path} is the record of another run, {spec.id}; remove it, or give it its name back")

    def read_whole(self, specs: Iterable[RunSpec] | None = None) -> tuple[list[Record], dict[Path, str]]:
        """Return the records of these runs, by default of all, and for each damaged file what is wrong with it."""
        if specs is None:
            paths = sorted((self.folder / "records").glob("*.safetensors"))
        else:
            paths = [path for path in map(self.path, specs) if path.exists()]
        records, damaged = [], {}
        for path in paths:
            try:
                records.append(self.read(path))
            except FileFormatError as error:
                damaged[path] = str(error)
        return records, damaged

    def records(self, specs: Iterable[RunSpec] | None = None) -> list[Record]:
        """Return the whole records of these runs, by default of all; a damaged file is named in a warning."""
        records, damaged = self.read_whole(specs)
        for error in damaged.values():
            warnings.warn(f"left out: {error}", stacklevel=2)
        return records

    def is_done(self, spec: RunSpec) -> bool:
        """Whether a run has a whole record without an error."""
        return any(record.error is None for record in self.read_whole([spec])[0])

    def ask(self, specs: Iterable[RunSpec]) -> None:
        """Note that these runs are wanted, so that a report can say which are missing."""
        wanted = json.dumps([spec.to_json() for spec in specs], sort_keys=True).encode()
        # A file per request, named by its content: asking twice, or two processes at once, does no harm.
        with replacing(self.folder / "asked" / f"{hashlib.sha256(wanted).hexdigest()[:12]}.json") as file:
            file.write(wanted)

    def asked(self) -> set[RunSpec]:
        """Return the runs that were wanted; folders of 0.1.0 do not say."""
        found: set[RunSpec] = set()
        for path in sorted((self.folder / "asked").glob("*.json")):
            wanted = read_json(path, "a list of runs; delete it to go on")
            found |= {RunSpec.from_json(spec) for spec in wanted.items()}
        return found


def _read_record(spec: RunSpec, tensors: TensorFields, manifest: Field) -> Record:
    error, method, reason, counts = (manifest.get(name) for name in ("error", "method", "stop_reason", "counts"))
    names = tuple(name.text() for name in manifest["class_names"].items())
    # A run that did not fail has all its numbers, finite; a model of `family` has no loss to compare.
    done, has_loss, count = error is None, error is None and spec.model is None, len(names)

    def metrics(part: Field, wanted: bool) -> dict[str, float]:
        if wanted and "accuracy" not in part.entries():
            part.refuse("the metrics of a run that did not fail")
        return {name: value.number(minimum=-1, maximum=1) for name, value in part.entries().items()}

    samples = tensors.whole("sample_labels", (None,), maximum=max(count - 1, 0))
    pixels = tensors.tensors["sample_images"].shape[1:] if "sample_images" in tensors else ()
    return Record(
        method=spec.label if method is None else method.text(),  # records of 0.1.0 have none
        spec=spec,
        error=None if error is None else error.text(),
        class_names=names,
        **{name: manifest[name].number(finite=has_loss) for name in ("loss", "cross_entropy")},
        seconds=manifest["seconds"].number(finite=done),
        stop_reason="" if reason is None else reason.text(),
        train=metrics(manifest["train"], has_loss),
        test=metrics(manifest["test"], done),
        confusion=tensors.whole("confusion", (count, count)),
        history=read_history(tensors, manifest),
        sample_images=tensors.real("sample_images", (len(samples), *pixels)),
        sample_labels=samples,
        sample_probabilities=tensors.real("sample_probabilities", (len(samples), count if len(samples) else None)),
        environment={name: value.text() for name, value in manifest["environment"].entries().items()},
        counts={} if counts is None else {name: n.whole(minimum=0) for name, n in counts.entries().items()},
    )


MODEL_FILE = "model.safetensors"
CHECKPOINT_FILE = "checkpoint.safetensors"
CONFIG_FILE = "config.json"
HISTORY_FORMATS = ("csv", "parquet")
_OTHER_FILES = (
    *("metrics.json", "history.csv", "history.parquet", "SHA256SUMS"),
    *("convergence.png", "filters.png", "samples"),
)


@contextmanager
def opened_run_folder(folder: Path, config: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Lock the folder of a training and write its configuration; a folder that holds a run is only resumed."""
    with working_in(folder):
        if not resume:  # else the configuration stays until the run is saved again: resuming may yet be refused
            if any((folder / name).exists() for name in (CHECKPOINT_FILE, MODEL_FILE)):
                raise InvalidInputError(
                    f"{folder} holds a run already; pass --resume to continue it, or name another folder with --out"
                )
            for name in () if _is_of_a_run(folder / CONFIG_FILE) else (CONFIG_FILE, *_OTHER_FILES):
                if (folder / name).exists():
                    raise InvalidInputError(
                        f"{folder / name} is there, of no run, and would be replaced; name another folder with --out"
                    )
            write_json(folder / CONFIG_FILE, config)
        remove_leftovers(folder / "samples")
        yield


def _is_of_a_run(config: Path) -> bool:
    """Whether a run wrote this configuration, perhaps one that was killed."""
    try:
        return "annealfit" in read_json(config, "a configuration").entries()
    except (FileFormatError, OSError):
        return False


def save_run(run: TrainingRun, folder: Path, config: Mapping[str, Any], *, history_format: str = "csv") -> None:
    """Write configuration, model, history, metrics and their digests; the checkpoint of the training stays."""
    write_json(folder / CONFIG_FILE, config)
    rows = []
    for record in run.records:
        columns = zip(*(column.tolist() for column in record.history.values()), strict=True)
        rows += [{"method": record.method, **dict(zip(record.history, row, strict=True))} for row in columns]
    history_file = f"history.{history_format}"
    with replacing(folder / history_file) as file:
        if history_format == "parquet":
            require("pyarrow", extra="parquet", purpose="writing Parquet")
            require("pandas", extra="parquet", purpose="writing Parquet").DataFrame(rows).to_parquet(file, index=False)
        else:
            file.write(csv_text(rows).encode())
    metrics = {
        record.method: {
            **{name: getattr(record, name) for name in (*_FIGURES, "train", "test")},
            "test_recall_per_class": dict(zip(run.dataset.class_names, record.recall.tolist(), strict=True)),
        }
        for record in run.records
    }
    write_json(folder / "metrics.json", metrics)
    run.model.save(folder / MODEL_FILE)
    with replacing(folder / "SHA256SUMS") as file:  # in the format of `sha256sum --check`
        for name in (CONFIG_FILE, MODEL_FILE, "metrics.json", history_file):
            file.write(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n".encode())


def csv_text(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV, whose texts a spreadsheet shows and never runs; rows may lack columns that others have."""
    text = io.StringIO(newline="")
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    shown = printable(value) if isinstance(value, str) else value
    return f"'{shown}" if isinstance(shown, str) and shown.lstrip().startswith(("=", "+", "-", "@")) else shown
