"""What other solvers found: read from CSV, JSON or npz, errors named with their place; energies recomputed, scored."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, check_number
from annealfit._support.files import check_regular, read_arrays
from annealfit.studies.instances import generating
from annealfit.studies.instances.catalogue import WITHIN, BestKnown, Instance, find_instance

# A read in a file: its place, the name of its instance, its bits.
_Read = tuple[str, str, Any]


@dataclass(frozen=True, eq=False)
class Answers:
    """The reads for one instance."""

    instance: Instance
    bits: NDArray[np.uint8]  # (reads, variables)


def read_answers(path: str | os.PathLike[str]) -> list[Answers]:
    """The reads of a file, by instance in the order of their first appearance.

    CSV: `name,bits` per line, the bits as one word (`0110…`) or one per column; a header `instance,bits` is optional,
    and lines that begin with `#` are skipped. JSON: a list of objects that have an `instance` and its `bits`, as one
    word or as a list, or one object that has a list of `bits` under each name. npz: an array (reads, variables) under
    each name.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _READERS:
        raise InvalidInputError(f"{os.fspath(path)} is none of {', '.join(_READERS)}; write samples as one of them")
    check_regular(path)
    reads: dict[Instance, list[NDArray[np.uint8]]] = {}
    for place, name, bits in _READERS[suffix](Path(path)):
        try:
            instance = find_instance(name)
            checked = _checked_bits(instance, bits)
        except InvalidInputError as error:
            raise InvalidInputError(f"{os.fspath(path)}, {place}: {error}") from error
        reads.setdefault(instance, []).append(checked)
    if not reads:
        raise InvalidInputError(f"{os.fspath(path)} has no samples; write a line per read: name,bits")
    return [Answers(instance, np.stack(rows)) for instance, rows in reads.items()]


def _read_csv(path: Path) -> Iterator[_Read]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not a CSV file of samples: {error}") from error
    for number, cells in lines:
        is_header = number == 1 and cells[:1] == ["instance"]
        if any(cells) and not is_header and not cells[0].startswith("#"):
            yield f"line {number}", cells[0], "".join(cells[1:])


def _read_json(path: Path) -> Iterator[_Read]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error
    if isinstance(content, dict):
        for name, reads in content.items():
            if not isinstance(reads, list):
                raise FileFormatError(f"{path}, {name}: expected a list of reads, each bits as text or as a list")
            yield from ((f"{name}, read {number}", name, bits) for number, bits in enumerate(reads, 1))
        return
    if not isinstance(content, list):
        raise FileFormatError(f'{path} holds no list of samples; write [{{"instance": name, "bits": bits}}, …]')
    for number, entry in enumerate(content, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("instance"), str) or "bits" not in entry:
            raise FileFormatError(f'{path}, entry {number}: expected {{"instance": name, "bits": "0110…"}}')
        yield f"entry {number}", entry["instance"], entry["bits"]


def _read_npz(path: Path) -> Iterator[_Read]:
    for name, reads in read_arrays(path).items():
        for number, bits in enumerate(np.atleast_2d(reads) if reads.ndim else [], 1):
            yield f"{name}, read {number}", name, bits


_READERS = {".csv": _read_csv, ".json": _read_json, ".npz": _read_npz}


def _checked_bits(instance: Instance, bits: Any) -> NDArray[np.uint8]:
    if isinstance(bits, str):
        bits = [int(digit) if digit in "01" else digit for digit in bits if not digit.isspace()]
    try:
        given = np.asarray(bits, dtype=object)
    except ValueError:  # rows of different lengths
        given = np.empty(0, dtype=object)
    if given.shape != (instance.n_variables,):
        found = f"{len(given)} bits" if given.ndim == 1 else f"bits of shape {given.shape}"
        raise InvalidInputError(f"{found}; {instance.name} has {instance.n_variables} variables")
    for position, bit in enumerate(given):
        if not isinstance(bit, int | float | np.number | np.bool_) or bit not in (0, 1):
            shown = bit.item() if isinstance(bit, np.generic) else bit
            hint = "; for spins write (1 + spin) / 2" if shown == -1 else ""
            raise InvalidInputError(f"variable {position} is {shown!r}; bits are 0 or 1{hint}")
    return given.astype(np.uint8)


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


def score_answers(answers: Answers, *, within: float = WITHIN) -> Score:
    """Compute the energies of all reads, and compare.

    A read counts as a success if its energy is within this share of the best known energy.
    """
    check_number("within", within, minimum=0)
    problem = generating.make_problem(answers.instance)
    known = generating.best_known_for(answers.instance, problem)
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
    return Score(answers.instance, energies, known, bits, float(energies[best]), residual, success, verdict)
