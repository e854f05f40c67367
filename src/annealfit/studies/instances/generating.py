"""From a name to the problem, the same coefficients bit for bit on every machine, and to its files.

An instance is a problem of a training: the curvature is computed from the images; gradient and range are on record
(`gradients.npz`, made by tools/instance_gradients.py), so that a later version that trains otherwise does not change
what was published. Sums over images differ in their last bits from one machine to the next, so all numbers are rounded
to a grid that such differences do not reach: curvature and gradient to 2⁻³⁰ of the largest, the range to 2⁻²⁰. On that
grid every sum that an export takes is exact, and so the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit import __version__
from annealfit._support.files import write_json
from annealfit._support.threads import blas_threads
from annealfit.data.datasets import ImagePreparation, MissingDataError, is_available, load_dataset, read_local
from annealfit.data.features import RandomConvFeatures
from annealfit.models import AnnealedClassifier
from annealfit.problems import export
from annealfit.problems.coordinates import CentredCoordinates
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding
from annealfit.problems.importing import digest
from annealfit.problems.problem import QuadraticProblem
from annealfit.studies.instances.catalogue import SEED, STAGES, BestKnown, ImageFeatures, Instance, best_known
from annealfit.training import Method

COEFFICIENT_BITS, RANGE_BITS = 30, 20
GRADIENTS_FILE = Path(__file__).with_name("gradients.npz")
LEADING = 100  # images of each class


def make_problem(instance: Instance) -> QuadraticProblem:
    """The problem of an instance, made from the data set's images."""
    *gradient, update_range = _gradients()[instance.name]
    metric = _curvature(instance.features, instance.coordinates)
    return QuadraticProblem(metric, np.array(gradient), Encoding(instance.bits, float(update_range)))


def round_to_grid(values: ArrayLike, bits: int) -> NDArray[np.float64]:
    """Values rounded to multiples of a power of two, such that the largest needs at most this many bits.

    >>> round_to_grid([0.9, 0.3, 0.01], 4).tolist()
    [0.875, 0.3125, 0.0]
    """
    given = np.asarray(values, dtype=np.float64)
    _, exponent = np.frexp(np.abs(given).max())
    return np.ldexp(np.rint(np.ldexp(given, bits - exponent)), exponent - bits)


@lru_cache(maxsize=4)
def rounded_metric(metric: Curvature) -> Curvature:
    """The curvature on the grid; all classes and iterations of a training share theirs."""
    return Curvature(round_to_grid(metric.matrix, COEFFICIENT_BITS))


@dataclass(frozen=True, eq=False)
class TrainingFeatures:
    """The rows of the training."""

    X: NDArray[np.float64]  # (N, d)
    y: NDArray[np.intp]
    class_names: tuple[str, ...]


@lru_cache(maxsize=1)
def training_features(features: ImageFeatures) -> TrainingFeatures:
    """The features of the images that an instance is made from, and their labels."""
    if features.images == "drawn":
        dataset = load_dataset(features.dataset, seed=SEED, size=features.image_size)
        images, labels, class_names = dataset.X_train, dataset.y_train, dataset.class_names
    else:
        parts = read_local(features.dataset)
        part, preparation = parts.test or parts.train, ImagePreparation((features.image_size,) * 2)
        by_class = [np.flatnonzero(part.labels == label)[:LEADING] for label in range(len(parts.class_names))]
        chosen = np.sort(np.concatenate(by_class))
        images = np.concatenate([preparation(stack) for stack in part.pick(chosen)])
        labels, class_names = part.labels[chosen], parts.class_names
    convolution = RandomConvFeatures(features.filters, features.kernel, features.pool, random_state=SEED)
    return TrainingFeatures(convolution.fit_transform(images), labels, class_names)


def make_classifier_of(instance: Instance) -> AnnealedClassifier:
    """The classifier whose training the instance is of."""
    # The library keeps the unit of the bias that it was made with: what has a name and a digest does not change.
    centred = CentredCoordinates(bias_unit=1.0)
    return AnnealedClassifier(
        bits=instance.bits,
        regularization=1e-3,
        method=Method(
            curvature="bound", coordinates=centred if instance.coordinates == "centred" else instance.coordinates
        ),
        random_state=SEED,
    )


@lru_cache(maxsize=2)
def _curvature(features: ImageFeatures, coordinates: str) -> Curvature:
    """The curvature of all classes, bits and iterations: it does not change in the course of a training."""
    seen = training_features(features)
    classifier = make_classifier_of(Instance(features, 1, coordinates, "first", 0))
    with blas_threads(0):
        return rounded_metric(classifier.problems(seen.X, seen.y).metrics[0])


@cache
def _gradients() -> dict[str, NDArray[np.float64]]:
    """By name: the gradient (D), and the range after it."""
    with np.load(GRADIENTS_FILE, allow_pickle=False) as archive:
        return dict(archive)


def parse_bits(text: str) -> NDArray[np.uint8]:
    """Bits from a text of 0 and 1.

    >>> parse_bits("0110").tolist()
    [0, 1, 1, 0]
    """
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8) - ord("0")


def best_known_for(instance: Instance, problem: QuadraticProblem) -> BestKnown:
    """The record of an instance, for the problem as it was made here.

    If its coefficients are not those on record, the recorded bits are still an answer, but a proof is no longer one.
    """
    known, found_digest = best_known(instance), digest(problem.to_qubo())
    if found_digest == known.sha256:
        return known
    energy = problem.energy(parse_bits(known.bits))
    return replace(known, energy=energy, proven=False, sha256=found_digest, couplings=problem.n_couplings)


@dataclass(frozen=True)
class WrittenInstance:
    """The files of one instance."""

    instance: Instance
    files: tuple[Path, ...]  # the sidecar last
    sidecar: dict[str, Any]


def require_data(instances: Sequence[Instance]) -> None:
    """Raise if a data set that the instances are made from is not on this machine."""
    needed = dict.fromkeys(instance.features.dataset for instance in instances)
    missing = [name for name in needed if not is_available(name)]
    if missing:
        remedies = ", ".join(f"`annealfit datasets fetch {name}`" for name in missing)
        raise MissingDataError(
            f"instances of {', '.join(missing)} are made from images that are not here; get them with {remedies}, "
            "or choose others with --select"
        )


def write_instance(instance: Instance, folder: Path, formats: Sequence[str]) -> WrittenInstance:
    """Write the problem in each of the formats, and beside them the sidecar `NAME.json`: all that is known of it."""
    problem = make_problem(instance)
    known, features = best_known_for(instance, problem), asdict(instance.features)
    files, described = [], []
    for word in formats:
        files.append(export.write(problem, folder / f"{instance.name}.{word}", format=word))
        offset = export.file_offset(problem, word)
        note = export.offset_note(word, offset)
        described.append({"file": files[-1].name, "format": word, "offset": offset, "note": note})
    sidecar = {
        "name": instance.name,
        "variables": problem.n_variables,
        "couplings": problem.n_couplings,
        "offset": export.file_offset(problem, "qubo"),
        "dataset": features.pop("dataset"),
        "seed": SEED,
        "d": instance.features.n_features,
        "features": features,
        "K": instance.bits,
        "range": problem.encoding.range,
        "coordinates": instance.coordinates,
        "stage": instance.stage,
        "iterations_before": STAGES[instance.stage],
        "class": instance.class_index,
        "class_name": training_features(instance.features).class_names[instance.class_index],
        "sha256": known.sha256,
        "is_the_published_one": known.sha256 == best_known(instance).sha256,
        "best_known": {name: getattr(known, name) for name in ("energy", "proven", "found_by", "bits")},
        "annealfit": __version__,
        "files": described,
    }
    path = folder / f"{instance.name}.json"
    write_json(path, sidecar)
    return WrittenInstance(instance, (*files, path), sidecar)
