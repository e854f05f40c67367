"""Exports of a factored problem: dense QUBO, Ising model, dimod's BQM, and files for other solvers.

All exports are exact: the energy of an export is the energy of the problem. Text files hold every coefficient with as
many decimals as its binary value needs (dimod's own writer keeps six, which turns 3e-7 into 0).

The text formats of other programs have no place for the constant of the energy, the offset. It is in a comment that
`importing.read` reads and other readers ignore: the energies that they report are lower by it (`offset_note`).

Every file carries the digest of its coefficients where other readers ignore it: in a comment, in the metadata of a
bqpjson file, behind the coefficients of a bqm file, in an array of an npz file. A file without a digest is another
program's. So that a part of a text of ours is not taken for one, it names annealfit at both ends, and the line that
every reader needs comes first, names annealfit too (`# annealfit vartype=BINARY`) or states the number of lines.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, choose, require
from annealfit._support.files import replacing
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature

if TYPE_CHECKING:
    import dimod

MAX_DENSE_VARIABLES = 16_384  # 2 GiB of coefficients: larger dense exports are refused
WITHOUT_OFFSET = frozenset({"coo", "ising", "qs", "qubo", "sparse"})  # formats whose usual readers leave the offset out
OFFSET_MARK, QS_OFFSET_MARK = "offset=", "ObjectiveOffset "
DIGEST_MARK = "digest="
DIGEST_KEY = "annealfit_digest"  # of JSON
END = "annealfit: the end"


def to_qubo(problem: QuadraticProblem) -> tuple[NDArray[np.float64], float]:
    """Return `(Q, offset)` with `E(b) = bᵀQb + offset`; `Q` is symmetric, with the linear terms on its diagonal."""
    _check_dense_size(problem)
    weights, delta = problem.encoding.weights, problem.encoding.range
    quadratic = np.kron(4 * problem.curvature, np.outer(weights, weights)).astype(np.float64, copy=False)
    linear = 4 * np.kron(problem.gradient - delta * problem.shared_curvature.row_sums, weights)
    quadratic[np.diag_indices_from(quadratic)] += linear  # b² = b
    return quadratic, file_offset(problem, "qubo")


def to_ising(problem: QuadraticProblem) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return `(h, J, offset)` with `E = hᵀs + sᵀJs + offset` for spins `s = 2b − 1`; `J` is strictly upper triangular.

    In spins the update is `u = Ps`, so `h = 2Pᵀg`, `J = 2PᵀGP` above the diagonal, and the squares of the
    spins leave `Σ_j G_jj Σ_k p_k²`.
    """
    _check_dense_size(problem)
    weights = problem.encoding.weights
    couplings = 2 * np.triu(np.kron(problem.curvature, np.outer(weights, weights)), 1)
    fields = np.kron(2 * problem.gradient, weights).astype(np.float64, copy=False)
    return fields, couplings, float(np.trace(problem.curvature) * (weights**2).sum())


def to_bqm(problem: QuadraticProblem) -> dimod.BinaryQuadraticModel:
    """Return dimod's BQM over the variables `0 … D·K − 1`."""
    dimod = require("dimod", extra="dwave", purpose="exporting a binary quadratic model")
    quadratic, offset = to_qubo(problem)
    bqm = dimod.BinaryQuadraticModel(quadratic, "BINARY")
    bqm.offset = offset
    return bqm


@dataclass(frozen=True, eq=False)
class Terms:
    """An energy as files have it: `upper` has the linear terms on its diagonal and the couplings above."""

    upper: NDArray[np.float64]  # (n, n)
    offset: float
    of_spins: bool = False

    @classmethod
    def of(cls, problem: QuadraticProblem) -> Terms:
        """Return the terms over bits."""
        quadratic, offset = to_qubo(problem)
        return cls(np.triu(quadratic) + np.triu(quadratic, 1), offset)

    @property
    def digest(self) -> str:
        """The SHA-256 of the upper triangle, row by row, and the offset, as little-endian 64-bit floats."""
        numbers = np.append(self.upper[np.triu_indices(len(self.upper))], self.offset) + 0.0  # −0 becomes 0
        return hashlib.sha256(numbers.astype("<f8").tobytes() + b"spins" * self.of_spins).hexdigest()


def _check_dense_size(problem: QuadraticProblem) -> None:
    if problem.n_variables > MAX_DENSE_VARIABLES:
        gibibytes = problem.n_variables**2 * 8 / 2**30
        raise InvalidInputError(
            f"a dense export of {problem.n_variables} variables takes {gibibytes:.0f} GiB "
            f"(limit: {MAX_DENSE_VARIABLES} variables); use fewer bits or features, or work on the factored problem"
        )


def largest_coefficient(problem: QuadraticProblem) -> float:
    """Return the largest absolute bias of the binary model, without building it: the paper's normalisation."""
    ((_, group),) = group_by_curvature([problem])
    return float(largest_coefficients(group)[0])


def largest_coefficients(problems: Problems) -> NDArray[np.float64]:
    """Return the largest absolute bias of each of several problems with a common curvature, shape (P,).

    Linear biases are `4p_k(g − δG1)_j + 4p_k²G_jj`, couplings `8 p_k p_l G_ij`. A linear bias is convex in
    `p_k`, so its largest values are at the finest and the coarsest bit.
    """
    curvature, bits, ranges = problems.shared_curvature, problems.bits, problems.ranges[:, None]
    coarsest = ranges * 2.0 ** (bits - 1) / (2.0**bits - 1)
    shifted = problems.gradients - ranges * curvature.row_sums
    largest = np.zeros(len(problems))
    for weight in (coarsest, coarsest / 2.0 ** (bits - 1)):
        largest = np.maximum(largest, np.abs(4 * weight * (shifted + weight * curvature.diagonal)).max(axis=1))
    quadratic = 0.5 * np.abs(curvature.diagonal).max() if bits > 1 else 0.0
    return np.maximum(largest, 8 * coarsest[:, 0] ** 2 * max(quadratic, curvature.largest_coupling))


def write(problem: QuadraticProblem, path: str | os.PathLike[str], *, format: str) -> Path:  # noqa: A002
    """Write the problem to `path` in one of `FORMATS`; the file appears whole or not at all."""
    writer = FORMATS[choose("format", format, FORMATS)]
    with replacing(path) as file:
        writer(problem, file)
    return Path(path)


def file_offset(problem: QuadraticProblem, format: str) -> float:  # noqa: A002
    """Return the offset that a file of this format states: an Ising model has another one than a QUBO."""
    if format == "ising":
        return to_ising(problem)[2]
    row_sums, delta = problem.shared_curvature.row_sums, problem.encoding.range
    return float(delta**2 * row_sums.sum() - 2 * delta * problem.gradient.sum())


def offset_note(format: str, offset: float) -> str | None:  # noqa: A002
    """Return how the energies that other programs report for a file differ from the problem's; None if they do not.

    >>> offset_note("qubo", 0.5)
    'energies that other programs report for a qubo file are lower by 0.5; add 0.5 to them'
    >>> offset_note("bqm", 0.5) is None
    True
    """
    if choose("format", format, FORMATS) not in WITHOUT_OFFSET or offset == 0:
        return None
    what = f"energies that other programs report for {'an' if format == 'ising' else 'a'} {format} file are"
    if offset > 0:
        return f"{what} lower by {offset!r}; add {offset!r} to them"
    return f"{what} higher by {-offset!r}; subtract {-offset!r} from them"


def write_bqm(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write dimod's binary BQM format, which `dimod.BinaryQuadraticModel.from_file` reads."""
    with to_bqm(problem).to_file() as source:
        file.write(source.read())
    file.write(f"{DIGEST_MARK}{Terms.of(problem).digest}".encode())


def write_coo(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the QUBO as text, `i j value` per line (i = j is linear): dimod's COO format with exact decimals."""
    _write_triplets(Terms.of(problem), file)


def write_ising(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the Ising model as text, `i j value` per line (i = j is a field): dimod's COO format, exact decimals."""
    fields, couplings, offset = to_ising(problem)
    _write_triplets(Terms(couplings + np.diag(fields), offset, of_spins=True), file)


def _write_triplets(terms: Terms, file: IO[bytes]) -> None:
    kind = "SPIN" if terms.of_spins else "BINARY"  # dimod reads the first line
    head = f"# annealfit vartype={kind}", f"# annealfit {DIGEST_MARK}{terms.digest}", f"# {OFFSET_MARK}{terms.offset!r}"
    _write_lines(file, head, _triplets(terms.upper), [f"# {END}"])


def write_qubo(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the text format of qbsolv, which many solvers read: `p qubo 0 nodes nodes couplers`, nodes, couplers."""
    terms = Terms.of(problem)
    size, couplers = len(terms.upper), np.count_nonzero(np.triu(terms.upper, 1))
    head = f"p qubo 0 {size} {size} {couplers}", f"c annealfit {DIGEST_MARK}{terms.digest}"
    _write_lines(file, [*head, f"c {OFFSET_MARK}{terms.offset!r}"], _triplets(terms.upper), [f"c {END}"])


def write_qs(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the text format of QOBLIB and of the Biq Mac library: `n m`, then m lines `i j Q_ij`, i ≤ j, from 1 on.

    `Q` is symmetric, so a coupling is twice its entry. Readers expect comments above the first of these lines only.
    """
    terms, (quadratic, _) = Terms.of(problem), to_qubo(problem)
    upper = np.triu(quadratic)
    head = (
        "# annealfit symmetric QUBO",
        f"# annealfit {DIGEST_MARK}{terms.digest}",
        f"# {QS_OFFSET_MARK}{terms.offset!r}",
    )
    lines = (line for line in _triplets(upper, first=1) if float(line.split()[2]))
    _write_lines(file, [*head, f"{len(upper)} {np.count_nonzero(upper)}"], lines)


def _triplets(upper: NDArray[np.float64], first: int = 0) -> Iterator[str]:
    """Yield `i j value` for every variable (i = j), then for every coupling; numbers start with `first`."""
    for row, bias in enumerate(upper.diagonal()):
        yield f"{row + first} {row + first} {_exact_decimals(bias)}"
    for row, values in enumerate(upper):
        for column in row + 1 + np.flatnonzero(values[row + 1 :]):
            yield f"{row + first} {column + first} {_exact_decimals(values[column])}"


def _exact_decimals(value: float) -> str:
    # Positional, because the readers' grammar has no exponent; shortest digits that read back the same.
    return np.format_float_positional(value, unique=True, trim="0")


def _write_lines(file: IO[bytes], *parts: Iterable[str]) -> None:
    for lines in parts:
        file.writelines(f"{line}\n".encode() for line in lines)


def write_bqpjson(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write bqpjson 1.0.0, the JSON format of lanl-ansi: linear and quadratic terms and the offset, over bits."""
    terms = Terms.of(problem)
    linear, couplings = terms.upper.diagonal(), np.triu(terms.upper, 1)
    pairs = np.argwhere(couplings).tolist()
    document = {
        "version": "1.0.0",
        "id": 0,
        "metadata": {DIGEST_KEY: terms.digest},
        "variable_domain": "boolean",
        "variable_ids": list(range(len(linear))),
        "scale": 1.0,
        "offset": terms.offset,
        "linear_terms": [{"id": i, "coeff": linear[i]} for i in np.flatnonzero(linear).tolist()],
        "quadratic_terms": [{"id_tail": i, "id_head": j, "coeff": couplings[i, j]} for i, j in pairs],
    }
    file.write(json.dumps(document).encode())


def write_npz(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write a NumPy archive of the factored problem (curvature, gradient, bits, range), its dense QUBO and offset."""
    quadratic, offset = to_qubo(problem)
    arrays: dict[str, Any] = {
        "curvature": problem.curvature,
        "gradient": problem.gradient,
        "bits": np.array(problem.encoding.bits, np.int64),
        "range": np.array(problem.encoding.range),
        "qubo": quadratic,
        "offset": np.array(offset),
        "digest": np.array(Terms.of(problem).digest),
    }
    np.savez_compressed(file, **arrays)


FORMATS: dict[str, Callable[[QuadraticProblem, IO[bytes]], None]] = {
    "bqm": write_bqm,
    "bqpjson": write_bqpjson,
    "coo": write_coo,
    "ising": write_ising,
    "npz": write_npz,
    "qs": write_qs,
    "qubo": write_qubo,
    "sparse": write_qs,
}
