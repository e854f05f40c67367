"""A seeded library of QUBO instances from real training: names, best known energies, problems, files, other answers.

A row of `instance_data/catalogue.toml` stands for every combination of its choices.

The same name gives the same coefficients bit for bit on every machine. The curvature is computed from the images;
gradient and range are on record (`gradients.npz`, made by tools/instance_gradients.py), so that a later version that
trains otherwise does not change what was published. Sums over images differ in their last bits from one machine to the
next, so all numbers are rounded to a grid that such differences do not reach: curvature and gradient to 2⁻³⁰ of the
largest, the range to 2⁻²⁰. On that grid every sum that an export takes is exact, and so the same everywhere.
"""

from __future__ import annotations

import csv
import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit import __version__
from annealfit._support.errors import FileFormatError, InvalidInputError, check_number
from annealfit._support.files import check_regular, read_arrays, read_json, replacing, write_json
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
from annealfit.studies.records import csv_text
from annealfit.training import Method

SEED = 42  # of the subset of images, the filters and the training
LATE = 5  # iterations of the training before a late problem
STAGES = {"first": 0, "late": LATE}
RECORD_FILE = Path(__file__).with_name("instance_data") / "best_known.json"
GRADIENTS_FILE = RECORD_FILE.with_name("gradients.npz")
MODELS_FILE = RECORD_FILE.with_name("models.npz")
COEFFICIENT_BITS, RANGE_BITS = 30, 20
LEADING = 100  # images of each class
_UNKNOWN = "N/A"  # in a submission to QOBLIB
WITHIN = 1e-9  # of the best known energy: more than rounding, less than a difference that matters


@dataclass(frozen=True)
class ImageFeatures:
    """What the features of an instance are computed from, and how."""

    dataset: str
    image_size: int
    filters: int
    kernel: int
    pool: int
    images: str = "drawn"  # 1,000 of the training part by the seed; "leading": the first of the test part

    @property
    def n_features(self) -> int:
        """`d = ⌊(size − kernel + 1)/pool⌋² · filters`."""
        return ((self.image_size - self.kernel + 1) // self.pool) ** 2 * self.filters


@dataclass(frozen=True)
class Instance:
    """One problem of one training: that of a class at the first iteration, or after some.

    A problem of another model that annealing trains, fitted to the digits, has all its coefficients on record.

    >>> MODEL_INSTANCES[0].name, MODEL_INSTANCES[0].n_variables
    ('digits-ridge-n64-k1-c0', 64)
    """

    features: ImageFeatures
    bits: int
    coordinates: str
    stage: str  # of `STAGES`
    class_index: int  # of a model: which of its problems
    model: str = ""
    size: int = 0  # parameters of a model

    @property
    def name(self) -> str:
        """Data set, features d (of a model its name and parameters), bits K, coordinates, stage and class."""
        data = self.features.dataset
        if self.model:
            return f"{data}-{self.model}-n{self.size}-k{self.bits}-c{self.class_index}"
        start = f"{data}-d{self.features.n_features}-k{self.bits}"
        return f"{start}-{self.coordinates}-{self.stage}-c{self.class_index}"

    @property
    def n_parameters(self) -> int:
        """`d + 1`, or the size of a model."""
        return self.size or self.features.n_features + 1

    @property
    def n_variables(self) -> int:
        """Parameters times bits."""
        return self.n_parameters * self.bits

    def describe(self) -> dict[str, Any]:
        """What the name says, as plain data; `d` is one less than the number of parameters."""
        return {
            "name": self.name,
            "dataset": self.features.dataset,
            "d": self.n_parameters - 1,
            "K": self.bits,
            "coordinates": self.coordinates,
            "stage": self.stage,
            "class": self.class_index,
            "variables": self.n_variables,
            **({"model": self.model} if self.model else {}),
        }


_CATALOGUE = tomllib.loads(RECORD_FILE.with_name("catalogue.toml").read_text(encoding="utf-8"))
MODEL_INSTANCES = tuple(
    Instance(ImageFeatures("digits", 8, 0, 1, 1), bits, "raw", "first", place, model, size)
    for model, size, *choices in _CATALOGUE["models"]
    for bits, place in product(*choices)
)
INSTANCES = (
    *(
        Instance(ImageFeatures(*features), *choice)
        for *features, bits, classes in _CATALOGUE["images"]
        for choice in product(bits, ("raw", "centred"), STAGES, classes)
    ),
    *MODEL_INSTANCES,
)
_BY_NAME = {instance.name: instance for instance in INSTANCES}


def find_instance(name: str) -> Instance:
    """The instance of this name, or an error that suggests the nearest name."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InvalidInputError(f"there is no instance {name!r}; {hint}`annealfit instances list` names all")


def select_instances(patterns: Sequence[str] = ()) -> tuple[Instance, ...]:
    """The instances whose names match one of the patterns (`*` stands for anything), in the catalogue's order.

    >>> [instance.name for instance in select_instances(["digits-d18-k1-centred-*"])]
    ['digits-d18-k1-centred-first-c0', 'digits-d18-k1-centred-late-c0']
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in _BY_NAME):
            raise InvalidInputError(
                f"no instance is called {pattern!r}; names are like {INSTANCES[0].name}, * stands for anything "
                "(quote it), and `annealfit instances list` names all"
            )
    chosen = patterns or ("*",)
    return tuple(i for i in INSTANCES if any(fnmatchcase(i.name, pattern) for pattern in chosen))


@dataclass(frozen=True)
class BestKnown:
    """The lowest energy known of an instance, the bits that have it, and the sampler that found them."""

    energy: float
    proven: bool  # no bits have a lower one; else it is the best of many tries
    found_by: dict[str, Any]  # the sampler and its settings
    bits: str  # of 0 and 1, variable 0 first
    sha256: str  # of the coefficients it was found for
    couplings: int
    date: str = "2026-11"  # when it was found; the records that do not say so are those of 0.2.0
    searches: int = 1  # independent ones, the last time
    reached: int = 1  # how many of them found this energy

    @property
    def strength(self) -> str:
        """How much the record is worth, in words."""
        return "proven" if self.proven else f"{self.reached} of {self.searches} searches"


def best_known(instance: Instance) -> BestKnown:
    """The record of an instance."""
    try:
        return _records()[instance.name]
    except KeyError as error:
        raise InvalidInputError(f"{instance.name} has no best known energy; find one: tools/best_known.py") from error


@cache
def _records() -> dict[str, BestKnown]:
    return {name: BestKnown(**record) for name, record in json.loads(RECORD_FILE.read_text(encoding="utf-8")).items()}


def make_problem(instance: Instance) -> QuadraticProblem:
    """The problem of an instance, made from the data set's images, or as it is on record."""
    if instance.model:
        *rows, linear, ranges = _arrays(MODELS_FILE)[instance.name]
        return QuadraticProblem(np.array(rows), linear, Encoding(instance.bits, float(ranges[0])))
    *gradient, update_range = _arrays(GRADIENTS_FILE)[instance.name]
    curvature = _curvature(instance.features, instance.coordinates)
    return QuadraticProblem(curvature, np.array(gradient), Encoding(instance.bits, float(update_range)))


def round_to_grid(values: ArrayLike, bits: int) -> NDArray[np.float64]:
    """Values rounded to multiples of a power of two, such that the largest needs at most this many bits.

    >>> round_to_grid([0.9, 0.3, 0.01], 4).tolist()
    [0.875, 0.3125, 0.0]
    """
    given = np.asarray(values, dtype=np.float64)
    _, exponent = np.frexp(np.abs(given).max())
    return np.ldexp(np.rint(np.ldexp(given, bits - exponent)), exponent - bits)


@lru_cache(maxsize=1)
def training_features(features: ImageFeatures) -> tuple[NDArray[np.float64], NDArray[np.intp], tuple[str, ...]]:
    """The features (N, d) of the images that an instance is made from, their labels, and the names of the classes."""
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
    return convolution.fit_transform(images), labels, class_names


def make_classifier_of(instance: Instance) -> AnnealedClassifier:
    """The classifier whose training the instance is of."""
    # The library keeps the unit of the bias that it was made with: what has a name and a digest does not change.
    basis = CentredCoordinates(bias_unit=1.0) if instance.coordinates == "centred" else instance.coordinates
    method = Method(curvature="bound", coordinates=basis)
    return AnnealedClassifier(bits=instance.bits, regularization=1e-3, method=method, random_state=SEED)


@lru_cache(maxsize=2)
def _curvature(features: ImageFeatures, coordinates: str) -> Curvature:
    """The curvature of all classes, bits and iterations: it does not change in the course of a training."""
    X, y, _ = training_features(features)
    classifier = make_classifier_of(Instance(features, 1, coordinates, "first", 0))
    with blas_threads(0):
        curvature = classifier.problems(X, y).curvatures[0]
    return Curvature(round_to_grid(curvature.matrix, COEFFICIENT_BITS))


@cache
def _arrays(path: Path) -> dict[str, NDArray[np.float64]]:
    """By name: the gradient (D), and the range after it; of models, curvature, gradient and range (D + 2, D)."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def parse_bits(text: str) -> NDArray[np.uint8]:
    """Bits from a text of 0 and 1."""
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


def write_instance(instance: Instance, folder: Path, formats: Sequence[str]) -> dict[str, Any]:
    """Write the problem in each of the formats, and beside them a sidecar `NAME.json`; return what the sidecar says."""
    problem = make_problem(instance)
    known, published, features = best_known_for(instance, problem), best_known(instance), asdict(instance.features)
    files = []
    for word in formats:
        file = export.write(problem, folder / f"{instance.name}.{word}", format=word)
        offset = export.file_offset(problem, word)
        files.append({"file": file.name, "format": word, "offset": offset, "note": export.offset_note(word, offset)})
    sidecar = {
        **instance.describe(),
        "couplings": problem.n_couplings,
        "offset": export.file_offset(problem, "qubo"),
        "seed": SEED,
        "features": {name: value for name, value in features.items() if name != "dataset"},
        "range": problem.encoding.range,
        "iterations_before": STAGES[instance.stage],
        "class_name": "" if instance.model else training_features(instance.features)[2][instance.class_index],
        "sha256": known.sha256,
        "is_the_published_one": known.sha256 == published.sha256,
        "best_known": {name: getattr(known, name) for name in ("energy", "proven", "found_by", "bits")},
        "annealfit": __version__,
        "files": files,
    }
    write_json(folder / f"{instance.name}.json", sidecar)
    return sidecar


@dataclass(frozen=True, eq=False)
class Answers:
    """The reads for one instance."""

    instance: Instance
    bits: NDArray[np.uint8]  # (reads, variables)
    seconds: NDArray[np.float64] | None = None  # (reads,): what each of them took


def read_answers(path: str | os.PathLike[str]) -> list[Answers]:
    """The reads of a CSV, JSON or npz file, by instance in the order of their first appearance.

    Each line of CSV is `name,bits`, the bits as one word (`0110…`) or one per column. A header `instance,bits` is
    optional, and lines that begin with `#` are skipped. Below `instance,seconds,bits` lines say what a read took.
    JSON is a list of objects with an `instance` and its `bits`, or an object with a list of bits under each name; npz
    has an array (reads, variables) under each name.
    """
    source = Path(path)
    lines = {".json": _reads_of_json, ".npz": _reads_of_npz}.get(source.suffix.lower(), _reads_of_csv)(source)
    reads: dict[Instance, list[tuple[NDArray[np.uint8], float | None]]] = {}
    for place, name, bits, seconds in lines:
        try:
            instance = find_instance(name)
            reads.setdefault(instance, []).append((_checked_bits(instance, bits), _checked_seconds(seconds)))
        except InvalidInputError as error:
            raise InvalidInputError(f"{source}, {place}: {error}") from error
    if not reads:
        raise InvalidInputError(f"{source} has no samples; write a line per read: name,bits")
    found = []
    for instance, own in reads.items():
        all_bits, times = zip(*own, strict=True)
        found.append(Answers(instance, np.stack(all_bits), None if None in times else np.array(times)))
    return found


_Read = tuple[str, str, str, str | None]  # its place in the file, the name, the bits, and what the read took


def _reads_of_csv(path: Path) -> Iterator[_Read]:
    check_regular(path)
    timed = False
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for cells in ([cell.strip() for cell in row] for row in reader):
                if reader.line_num == 1 and cells[:1] == ["instance"]:
                    timed = cells[1:2] == ["seconds"]
                elif any(cells) and not cells[0].startswith("#"):
                    seconds = "".join(cells[1:2]) if timed else None
                    yield f"line {reader.line_num}", cells[0], "".join(cells[1 + timed :]), seconds
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not a CSV file of samples: {error}") from error


def _reads_of_json(path: Path) -> Iterator[_Read]:
    document = read_json(path, "a JSON file of samples")
    if isinstance(document.value, dict):
        lists = {name: reads.items() for name, reads in document.entries().items()}
        entries = [(f"{name}, read {n}", name, bits) for name, own in lists.items() for n, bits in enumerate(own, 1)]
    else:
        items = enumerate(document.items(), 1)
        entries = [(f"entry {n}", entry["instance"].text(), entry["bits"]) for n, entry in items]
    for place, name, bits in entries:
        text = bits.value if isinstance(bits.value, str) else "".join(str(bit.scalar()) for bit in bits.items())
        yield place, name, text, None


def _reads_of_npz(path: Path) -> Iterator[_Read]:
    for name, reads in read_arrays(path).items():
        for number, bits in enumerate(np.atleast_2d(reads), 1):
            yield f"{name}, read {number}", name, "".join(map(str, bits.tolist())), None


def _checked_seconds(text: str | None) -> float | None:
    try:
        found = None if text is None else float(text)
    except ValueError:
        raise InvalidInputError(f"seconds is {text!r}; it must be a number") from None
    if found is not None:
        check_number("seconds", found, minimum=0)
    return found


def _checked_bits(instance: Instance, text: str) -> NDArray[np.uint8]:
    if wrong := sorted(set(text) - {"0", "1"}):
        hint = "; for spins write (1 + spin) / 2" if "-" in wrong else ""
        raise InvalidInputError(f"the bits hold {wrong[0]!r}; bits are 0 or 1{hint}")
    if len(text) != instance.n_variables:
        raise InvalidInputError(f"{len(text)} bits; {instance.name} has {instance.n_variables} variables")
    return parse_bits(text)


@dataclass(frozen=True, eq=False)
class Score:
    """How the reads for one instance compare with the best known energy."""

    instance: Instance
    energies: NDArray[np.float64]  # (reads,), computed from the bits
    known: BestKnown
    best_bits: str
    best_energy: float
    residual: float  # of the lowest energy above the best known, as a share of the latter; below 0 it is a new best
    success: float  # the share of reads that reached the best known energy
    verdict: str  # where the best read stands, in words
    seconds: NDArray[np.float64] | None = None  # (reads,)


def score_answers(answers: Answers, *, within: float = WITHIN) -> Score:
    """Compute the energies of all reads, and compare.

    A read counts as a success if its energy is within this share of the best known energy.
    """
    check_number("within", within, minimum=0)
    problem = make_problem(answers.instance)
    known = best_known_for(answers.instance, problem)
    energies = problem.energy(answers.bits)
    best, scale = int(np.argmin(energies)), abs(known.energy) or 1.0
    residual = (float(energies[best]) - known.energy) / scale
    if residual > within:
        verdict = "above"
    elif residual < -within:
        verdict = "below a proven optimum: please report it" if known.proven else "new best"
    else:
        verdict = "optimal" if known.proven else "best known"
    bits = "".join(map(str, answers.bits[best].tolist()))
    success = float((energies <= known.energy + within * scale).mean())
    lowest = float(energies[best])
    return Score(answers.instance, energies, known, bits, lowest, residual, success, verdict, answers.seconds)


def write_submission(score: Score, folder: Path, within: float) -> Path:
    """Write a submission to QOBLIB of one instance below a folder, and return its folder.

    Its guidelines (CONTRIBUTING.md of ZIB-AOPT/QOBLIB) name the files and the columns. A read is a run, which ended
    after its `seconds`; runs are successful within this share of the best of them.
    """
    name, place = score.instance.name, folder / score.instance.name
    texts = {"summary.csv": csv_text([_summary(score, within)]), "solution.txt": "\n".join(score.best_bits) + "\n"}
    for ending, text in texts.items():
        with replacing(place / f"{name}_{ending}") as file:
            file.write(text.encode())
    if score.seconds is not None:
        times = zip(score.seconds.tolist(), score.energies.tolist(), strict=True)
        series = [[{"Time": seconds, "Incumbent": energy}] for seconds, energy in times]
        write_json(place / f"{name}_objective_time_series.json", series)
    return place


def _summary(score: Score, within: float) -> dict[str, Any]:
    """Return the row of the summary; the submitter fills in what is empty."""
    problem, best = make_problem(score.instance), score.best_energy
    offset = export.file_offset(problem, "qs")
    quadratic, _ = problem.to_qubo()
    coefficients = np.triu(quadratic)[np.triu(quadratic) != 0]
    reached = score.energies <= best + within * abs(best)
    seconds = score.seconds
    return {
        **dict.fromkeys(("Problem", "Submitter", "Affiliation", "Date", "Reference"), ""),
        "Problem": score.instance.name,
        "Date": date.today().isoformat(),
        "Best Objective Value": best,
        "Optimality Bound": _UNKNOWN,
        "Modeling Approach": "QUBO",
        "# Decision Variables": problem.n_variables,
        "# Binary Variables": problem.n_variables,
        "# Integer Variables": 0,
        "# Continuous Variables": 0,
        "# Non-Zero Coefficients": len(coefficients),
        "Coefficients Type": "continuous",
        "Coefficients Range": f"from {coefficients.min()} to {coefficients.max()}",
        **dict.fromkeys(("Workflow", "Algorithm Type", "Paradigm"), ""),
        "# Runs": len(score.energies),
        "# Feasible Runs": len(score.energies),
        "# Successful Runs": int(reached.sum()),
        "Success Threshold": within,
        "Hardware Specifications": "",
        "Total Runtime": _UNKNOWN if seconds is None else float(seconds.mean()),
        "Time to Solution": _UNKNOWN if seconds is None else float(seconds[score.energies == best].min()),
        **dict.fromkeys(("CPU Runtime", "GPU Runtime", "QPU Runtime", "Other HW Runtime"), _UNKNOWN),
        "Remarks": f"The objective value contains the ObjectiveOffset {offset!r} of the qs file.",
    }
