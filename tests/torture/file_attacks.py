"""Files of ours, damaged: whatever is read is what was written, or is refused with a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mutations import mutate_bytes, mutate_document, mutate_tensors
from outcomes import Tally, attempt
from sklearn.datasets import load_iris

from annealfit import (
    QUBOSVC,
    AnnealedClassifier,
    AnnealedConvNet,
    BinarySparseCoding,
    QBoostClassifier,
    QUBORidgeClassifier,
    RandomConvFeatures,
    load_dataset,
    load_model,
)
from annealfit._support.errors import AnnealfitError
from annealfit._support.files import read_tensors, write_tensors
from annealfit.models.image_classifier import ImageClassifier
from annealfit.problems import export
from annealfit.problems import importing as exported
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.studies.execute import execute
from annealfit.studies.records import RunSpec, Store
from annealfit.training.checkpoint import Checkpoint, CheckpointFile


@dataclass(frozen=True)
class Target:
    """A file, how it is read, how it is written again, and whether what was read can be used."""

    name: str
    path: Path
    kind: str | None  # of a safetensors file
    read: Callable[[Path], Any]
    again: Callable[[Any, Path], Any]
    use: Callable[[Any], bool]


def targets(folder: Path) -> list[Target]:
    """A small file of every kind."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [*_models(folder), *_family(folder), *_checkpoints(folder), *_records(folder), *_exports(folder)]


def _models(folder: Path) -> Iterator[Target]:
    X, y = load_iris(return_X_y=True)
    data = load_dataset("digits", n_train=100, n_test=20)
    model = AnnealedClassifier(bits=2, max_iter=3, random_state=1, sampler="native")
    model.fit(X, np.array(["setosa", "versicolor", "virginica"])[y]).save(folder / "model")
    yield Target(
        "model",
        folder / "model",
        "classifier",
        AnnealedClassifier.load,
        lambda loaded, path: loaded.save(path),
        lambda loaded: _is_distribution(loaded.predict_proba(X[:, : loaded.n_features_in_]), loaded),
    )
    net = AnnealedConvNet(n_filters=(2, 2), pool_size=(2, 1), max_iter=3, standardize="pixels", random_state=0)
    net.fit(data.X_train, data.y_train).save(folder / "network")
    yield Target(
        "network",
        folder / "network",
        "convolution network",
        AnnealedConvNet.load,
        lambda loaded, path: loaded.save(path),
        lambda loaded: _is_distribution(loaded.predict_proba(_images(loaded.features_)), loaded),
    )
    features = RandomConvFeatures(standardize="features", random_state=0).fit(data.X_train)
    head = AnnealedClassifier(bits=1, max_iter=2, random_state=0).fit(features.transform(data.X_train), data.y_train)
    ImageClassifier(features, head, data.class_names).save(folder / "images")
    yield Target(
        "image classifier",
        folder / "images",
        "image classifier",
        ImageClassifier.load,
        lambda loaded, path: loaded.save(path),
        lambda loaded: _is_distribution(loaded.predict_proba(_images(loaded.features)), loaded.classifier),
    )


def _images(features: Any) -> np.ndarray:
    shape = features.image_shape_
    return np.random.default_rng(0).random((2, *shape)) if np.prod(shape) < 1e6 else np.zeros((1, *shape))


def _is_distribution(probabilities: np.ndarray, model: Any) -> bool:
    return bool(np.isfinite(probabilities).all()) and probabilities.shape[1] == len(model.classes_)


def _family(folder: Path) -> Iterator[Target]:
    X, y = load_iris(return_X_y=True)
    for model in (QBoostClassifier(n_estimators=4), QUBOSVC(), QUBORidgeClassifier(), BinarySparseCoding(3)):
        name = type(model).__name__
        model.set_params(random_state=0).fit(X[::3], y[::3]).save(folder / name)
        yield Target(
            name,
            folder / name,
            name,
            load_model,
            lambda loaded, path: loaded.save(path),
            lambda loaded: _answers(loaded),
        )


def _answers(model: Any) -> bool:
    rows = np.zeros((2, model.n_features_in_))
    found = model.predict(rows) if hasattr(model, "predict") else model.transform(rows)
    return len(found) == 2


def _checkpoints(folder: Path) -> Iterator[Target]:
    """One of a classifier with validation data, which has every field that there is, and one of a network."""
    X, y = load_iris(return_X_y=True)
    data = load_dataset("digits", n_train=100, n_test=20)
    of_classifier = AnnealedClassifier(bits=2, max_iter=3, tol=0.0, validation_fraction=0.3, random_state=1)
    of_network = AnnealedConvNet(n_filters=2, max_iter=8, validation_fraction=0.3, random_state=1)
    for name, model, rows in (
        ("checkpoint", of_classifier, (X, y)),
        ("network checkpoint", of_network, (data.X_train, data.y_train)),
    ):
        path = folder / f"{name.replace(' ', '-')}.safetensors"
        model.set_params(checkpoint=path).fit(*rows)
        settings = read_tensors(path, "training checkpoint")[1]["settings"].value

        def resume(found: Any, model: Any = model, rows: Any = rows) -> bool:
            resumed = Checkpoint(found[2], resume=True)
            again = model.set_params(checkpoint=resumed, max_iter=model.max_iter + 1).fit(*rows)
            model.set_params(max_iter=model.max_iter - 1)
            return bool(np.isfinite(again.coef_).all() and np.isfinite(again.history_[-1]["loss"]))

        def save(found: Any, path: Path, settings: Any = settings) -> None:
            CheckpointFile(path, 1, settings).save(*found[:2])

        yield Target(
            name,
            path,
            "training checkpoint",
            lambda path, settings=settings: (*CheckpointFile(path, 1, settings).load(), path),
            save,
            resume,
        )


def _records(folder: Path) -> Iterator[Target]:
    record = execute(RunSpec("digits", "qubo", 42, "matched", 5, max_iter=3))
    store = Store(folder)
    store.save(record)

    def save(found: Any, path: Path) -> None:
        Store(path.parent / "again").save(found)
        path.write_bytes(Store(path.parent / "again").path(found.spec).read_bytes())

    yield Target(
        "record",
        store.path(record.run),
        "run record",
        store.read,
        save,
        lambda found: all(np.isfinite([found.loss, *found.train.values(), *found.test.values()])) or bool(found.error),
    )


def _exports(folder: Path) -> Iterator[Target]:
    generator = np.random.default_rng(3)
    matrix = generator.normal(size=(4, 4))
    problem = QuadraticProblem(matrix @ matrix.T, generator.normal(size=4), Encoding(bits=2, range=0.5))
    for word in export.FORMATS:
        path = export.write(problem, folder / f"problem.{word}", format=word)
        yield Target(
            f"export: {word}",
            path,
            None,
            exported.read,
            lambda found, path: path.write_bytes(exported.digest(found).encode()),
            lambda found: bool(np.isfinite(found[0]).all()),
        )


def attack_bytes(target: Target, count: int, seed: int, others: list[bytes]) -> Tally:
    """Damaged bytes: accepted only if what was read is what was written."""
    generator, tally = np.random.default_rng([seed, 1]), Tally(f"{target.name}: damaged bytes")
    content = target.path.read_bytes()
    scratch = _scratch(target)
    for number in range(count):
        damaged = mutate_bytes(content, others, generator)
        _attack(tally, target, damaged, scratch, f"mutation {number}")
    return tally


def attack_bits(target: Target, step: int = 1) -> Tally:
    """Every single bit, or every so many, flipped."""
    tally, content = Tally(f"{target.name}: single bits"), target.path.read_bytes()
    scratch = _scratch(target)
    for bit in range(0, 8 * len(content), step):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        _attack(tally, target, bytes(damaged), scratch, f"bit {bit}")
    return tally


def _attack(tally: Tally, target: Target, damaged: bytes, scratch: Path, what: str) -> None:
    scratch.write_bytes(damaged)
    whole = _written_again(target, target.path)
    attempt(tally, what, lambda: target.read(scratch), lambda found: _content(target, found, scratch) == whole)


_KNOWN: dict[Path, bytes] = {}


def _written_again(target: Target, path: Path) -> bytes:
    if path not in _KNOWN:
        _KNOWN[path] = _content(target, target.read(path), _scratch(target))
    return _KNOWN[path]


def _content(target: Target, found: Any, scratch: Path) -> bytes:
    copy = scratch.with_name(f"{scratch.name}.copy")
    target.again(found, copy)
    return copy.read_bytes()


def _scratch(target: Target) -> Path:
    """Where damaged copies are; a record has to have its name."""
    folder = target.path.parent / "damaged"
    folder.mkdir(exist_ok=True)
    return folder / target.path.name


def attack_fields(target: Target, count: int, seed: int) -> Tally:
    """Other values in every field and tensor, with a digest that fits: refused, or usable."""
    generator, tally = np.random.default_rng([seed, 2]), Tally(f"{target.name}: fields, signed anew")
    assert target.kind is not None
    tensors, manifest = read_tensors(target.path, target.kind)
    scratch = _scratch(target)
    for number in range(count):
        document, arrays = manifest.value, dict(tensors.tensors)
        if generator.random() < 0.7:
            document = mutate_document(document, generator)
        else:
            arrays = mutate_tensors(arrays, generator)
        try:
            write_tensors(scratch, target.kind, arrays, document)
        except (AnnealfitError, ValueError, TypeError):  # not a thing that can be written
            continue
        attempt(tally, f"mutation {number}", lambda: target.read(scratch), target.use)
    return tally
