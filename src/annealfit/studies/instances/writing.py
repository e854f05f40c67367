"""Instances as files for other solvers, each with a sidecar that says what it is and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from annealfit import __version__
from annealfit._support.files import write_json
from annealfit.data.datasets import MissingDataError, is_available
from annealfit.problems import export
from annealfit.problems.importing import digest
from annealfit.problems.problem import QuadraticProblem
from annealfit.studies.instances.catalogue import SEED, STAGES, Instance
from annealfit.studies.instances.generating import class_name, make_problem
from annealfit.studies.instances.known_energies import best_known, best_known_for


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
    """Write the problem in each of the formats, and the sidecar `NAME.json` beside them."""
    problem = make_problem(instance)
    sidecar, files = describe_instance(instance, problem), []
    for word in formats:
        files.append(export.write(problem, folder / f"{instance.name}.{word}", format=word))
        offset = export.file_offset(problem, word)
        note = export.offset_note(word, offset)
        sidecar["files"].append({"file": files[-1].name, "format": word, "offset": offset, "note": note})
    path = folder / f"{instance.name}.json"
    write_json(path, sidecar)
    return WrittenInstance(instance, (*files, path), sidecar)


def describe_instance(instance: Instance, problem: QuadraticProblem) -> dict[str, Any]:
    """All that is known of an instance, as plain data."""
    found_digest = digest(problem.to_qubo())
    known = best_known_for(instance, problem, found_digest)
    features = asdict(instance.features)
    return {
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
        "class_name": class_name(instance),
        "sha256": found_digest,
        "is_the_published_one": found_digest == best_known(instance).sha256,
        "best_known": {
            "energy": known.energy,
            "proven": known.proven,
            "found_by": known.found_by,
            "bits": known.bits,
        },
        "annealfit": __version__,
        "files": [],
    }
