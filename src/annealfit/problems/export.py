"""Exports of a factored problem: dense QUBO, Ising model, dimod's BQM, and files for other solvers.

All exports are exact: the energy of an export is the energy of the problem. Text files hold every coefficient with as
many decimals as its binary value needs (dimod's own writer keeps six, which turns 3e-7 into 0).

The text formats of other programs have no place for the constant of the energy, the offset. It is in a comment that
`importing.read` reads and other readers ignore: the energies that they report are lower by it (`offset_note`).

Every file carries a digest where other readers ignore it: in comments at the beginning and the end of a text (of qs
and sparse above the numbers alone), in the header of a bqm file, in the metadata of a bqpjson file, in an array of an
npz file. A file without a digest is another program's. So that a text of ours that lost both comments is not taken for
one, the line that every reader needs names annealfit (`# annealfit vartype=BINARY`) or states the number of lines
(`p qubo`, and the `n m` of qs).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, choose, require
from annealfit._support.files import digest_of_arrays, read_arrays, replacing
from annealfit._support.schema import Field, settings_of
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature

if TYPE_CHECKING:
    import dimod

MAX_DENSE_VARIABLES = 16_384  # 2 GiB of coefficients: larger dense exports are refused
WITHOUT_OFFSET = frozenset({"coo", "ising", "qs", "qubo", "sparse"})  # formats whose usual readers leave the offset out
OURS = "annealfit"
OFFSET_MARK = "offset="
QS_OFFSET_MARK = "ObjectiveOffset "
SEAL = f"{OURS} sha256="  # of all lines without this mark
ARRAYS_DIGEST = "sha256"
BQM_MAGIC = b"DIMODBQM"
BQM_DIGEST = BQPJSON_DIGEST = "annealfit_sha256"


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
        content = source.read()
    start = len(BQM_MAGIC) + 2  # two bytes of version, four of the header's length, the header, the coefficients
    length = int.from_bytes(content[start : start + 4], "little")
    header, rest = json.loads(content[start + 4 : start + 4 + length]), content[start + 4 + length :]
    header[BQM_DIGEST] = digest_of_bqm(header, rest)
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-(start + 4 + len(text) + 1) % 64) + b"\n"  # dimod aligns the coefficients to 64 bytes
    file.write(content[:start] + len(text).to_bytes(4, "little") + text + rest)


def digest_of_bqm(header: Mapping[str, Any], rest: bytes) -> str:
    """Return the SHA-256 of a bqm file: its header without this digest, and the coefficients."""
    others = {name: value for name, value in header.items() if name != BQM_DIGEST}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode() + rest).hexdigest()


def write_coo(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the QUBO as text, `i j value` per line (i = j is linear): dimod's COO format with exact decimals."""
    quadratic, offset = to_qubo(problem)
    head = [f"# {OURS} vartype=BINARY", f"# {OFFSET_MARK}{json.dumps(offset)}"]  # dimod reads the first
    _write_text(file, "#", head, _entries(quadratic.diagonal(), 2 * np.triu(quadratic, 1)))


def write_ising(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the Ising model as text, `i j value` per line (i = j is a field): dimod's COO format, exact decimals."""
    fields, couplings, offset = to_ising(problem)
    head = [f"# {OURS} vartype=SPIN", f"# {OFFSET_MARK}{json.dumps(offset)}"]
    _write_text(file, "#", head, _entries(fields, couplings))


def write_qubo(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the text format of qbsolv, which many solvers read: `p qubo 0 nodes nodes couplers`, nodes, couplers."""
    quadratic, offset = to_qubo(problem)
    size, couplings = len(quadratic), 2 * np.triu(quadratic, 1)
    head = [f"c {OFFSET_MARK}{json.dumps(offset)}", f"p qubo 0 {size} {size} {np.count_nonzero(couplings)}"]
    nodes = _entries(quadratic.diagonal(), np.zeros((size, 0)))
    couplers = (line for row in range(size) for line in _couplers(couplings[row], row, 0))
    _write_text(file, "c", head, chain(nodes, couplers))


def write_qs(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write the text format of QOBLIB and of the Biq Mac library: `n m`, then m lines `i j Q_ij`, i ≤ j, from 1 on.

    `Q` is symmetric, so a coupling is twice its entry. Readers expect comments above the first of these lines only.
    """
    quadratic, offset = to_qubo(problem)
    upper = np.triu(quadratic, 1)
    count = np.count_nonzero(upper) + np.count_nonzero(quadratic.diagonal())
    head = [f"# {OURS} symmetric QUBO", f"# {QS_OFFSET_MARK}{json.dumps(offset)}"]
    lines = (line for line in _entries(quadratic.diagonal(), upper, first=1) if float(line.split()[2]))
    _write_text(file, "#", head, chain([f"{len(quadratic)} {count}"], lines), seal_below=False)


def _entries(linear: NDArray[np.float64], couplings: NDArray[np.float64], first: int = 0) -> Iterator[str]:
    """Yield `i j value` for every variable (i = j) and coupling (i < j), row by row; numbers start with `first`."""
    for row, bias in enumerate(linear):
        yield f"{row + first} {row + first} {_exact_decimals(bias)}"
        yield from _couplers(couplings[row], row, first)


def _couplers(values: NDArray[np.float64], row: int, first: int) -> Iterator[str]:
    for column in np.flatnonzero(values):
        yield f"{row + first} {column + first} {_exact_decimals(values[column])}"


def _write_text(file: IO[bytes], mark: str, head: list[str], lines: Iterable[str], *, seal_below: bool = True) -> None:
    """Write the head, a seal, the lines, and a seal.

    A seal is a comment; the first has the digest of all other lines. A text that is cut at either end lacks one.
    """
    digest = hashlib.sha256()

    def put(line: str) -> None:
        content = f"{line}\n".encode()
        digest.update(content)
        file.write(content)

    for line in head:
        put(line)
    file.write(f"{mark} {SEAL}".encode())
    place = file.tell()
    file.write(b"0" * 64 + b"\n")
    for line in lines:
        put(line)
    if seal_below:
        file.write(f"{mark} {SEAL}above\n".encode())
    file.seek(place)
    file.write(digest.hexdigest().encode())
    file.seek(0, os.SEEK_END)


def _exact_decimals(value: float) -> str:
    # Positional, because the readers' grammar has no exponent; shortest digits that read back the same.
    return np.format_float_positional(value, unique=True, trim="0")


def write_bqpjson(problem: QuadraticProblem, file: IO[bytes]) -> None:
    """Write bqpjson 1.0.0, the JSON format of lanl-ansi: linear and quadratic terms and the offset, over bits."""
    quadratic, offset = to_qubo(problem)
    linear, upper = quadratic.diagonal(), 2 * np.triu(quadratic, 1)
    document: dict[str, Any] = {
        "version": "1.0.0",
        "id": 0,
        "metadata": {},
        "variable_domain": "boolean",
        "variable_ids": list(range(len(quadratic))),
        "scale": 1.0,
        "offset": offset,
        "linear_terms": [{"id": i, "coeff": linear[i]} for i in np.flatnonzero(linear).tolist()],
        "quadratic_terms": [{"id_tail": i, "id_head": j, "coeff": upper[i, j]} for i, j in np.argwhere(upper).tolist()],
    }
    document["metadata"][BQPJSON_DIGEST] = digest_of_bqpjson(document)
    file.write(json.dumps(document).encode())


def digest_of_bqpjson(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a bqpjson document without this digest."""
    metadata = {name: value for name, value in document["metadata"].items() if name != BQPJSON_DIGEST}
    return hashlib.sha256(json.dumps({**document, "metadata": metadata}, sort_keys=True).encode()).hexdigest()


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
    }
    arrays[ARRAYS_DIGEST] = np.array(digest_of_arrays(arrays))
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


def read_checked_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file and check the digest among them; 0.1.0 stored none."""
    arrays = read_arrays(path)
    digest = arrays.pop(ARRAYS_DIGEST, None)
    if digest is not None and (digest.ndim or digest.item() != digest_of_arrays(arrays)):
        raise FileFormatError(f"{os.fspath(path)} is corrupt: it does not match its digest; export it again")
    return arrays


def read_npz(path: str | os.PathLike[str]) -> QuadraticProblem:
    """Read the problem that `write(…, format="npz")` wrote, bit for bit."""
    arrays = read_checked_arrays(path)
    missing = sorted({"bits", "range", "curvature", "gradient"} - arrays.keys())
    if missing:
        raise FileFormatError(f"{os.fspath(path)} is not a problem written by annealfit: it lacks {', '.join(missing)}")
    with settings_of(Field(None, source=os.fspath(path))):
        encoding = Encoding(bits=arrays["bits"].item(), range=arrays["range"].item())
        return QuadraticProblem(arrays["curvature"], arrays["gradient"], encoding)
