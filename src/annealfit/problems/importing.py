"""Exports read back: the dense QUBO and its offset, from a file of any format, and the digest that tells two apart."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, require
from annealfit._support.files import check_regular
from annealfit.problems.export import (
    BQM_DIGEST,
    BQM_MAGIC,
    MAX_DENSE_VARIABLES,
    OFFSET_MARK,
    OURS,
    SEAL,
    digest_of_bqm,
    read_checked_arrays,
)

Dense = tuple[NDArray[np.float64], float]  # Q, symmetric with linear terms on its diagonal, and the offset


def read(path: str | os.PathLike[str]) -> Dense:
    """`(Q, offset)` of a file that `export.write` wrote, whatever its format: `E(b) = bᵀQb + offset`.

    The format is told by the file's content. Files of other programs are read too; without a comment that says
    otherwise their offset is 0. Of a text that says neither `p qubo` nor `# vartype=` nobody knows whether it is about
    bits or spins, or the middle of a longer one: it is refused.
    """
    check_regular(path)
    content = Path(path).read_bytes()
    try:
        if content.startswith(b"PK"):
            arrays = read_checked_arrays(path)
            return _checked(arrays["qubo"], arrays["offset"].item())
        if content.startswith(BQM_MAGIC):
            return _checked(*_read_bqm(content))
        _check_seal(content)
        return _checked(*_read_text(content.decode()))
    except FileFormatError:
        raise
    except (
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        EOFError,
        OverflowError,
        RecursionError,
        struct.error,
    ) as error:
        raise FileFormatError(
            f"{os.fspath(path)} is not a problem in one of the formats bqm, coo, ising, npz or qubo ({error}); "
            "export it again"
        ) from error


def _checked(quadratic: NDArray[Any], offset: Any) -> Dense:
    """Finite numbers, square and symmetric."""
    if quadratic.dtype != np.float64 or quadratic.ndim != 2 or quadratic.shape[0] != quadratic.shape[1]:
        raise ValueError(f"its matrix has the shape {quadratic.shape} and the type {quadratic.dtype}")
    if not np.isfinite(quadratic).all() or not isinstance(offset, float) or not math.isfinite(offset):
        raise ValueError("it holds NaN or infinity")
    if not np.array_equal(quadratic, quadratic.T):
        raise ValueError("its matrix is not symmetric")
    return quadratic, offset


def digest(dense: Dense) -> str:
    """SHA-256 of the coefficients: the same for the same problem, from any format but `ising`, whose spins round.

    Of the upper triangle of `bᵀQb + offset` row by row (the linear term, then the couplings to later variables, each
    `Q_ij + Q_ji`) and the offset, as little-endian 64-bit floats.

    >>> digest((np.array([[1.0, 0.5], [0.5, -1.0]]), 0.25))[:12]
    '6f6bbdc5e224'
    """
    quadratic, offset = dense
    upper = np.triu(quadratic) + np.triu(quadratic.T, 1)
    told = np.append(upper[np.triu_indices(len(upper))], offset) + 0.0  # there is only one zero
    return hashlib.sha256(told.astype("<f8").tobytes()).hexdigest()


def _check_seal(content: bytes) -> None:
    """Hold a text of ours against its digest; other programs' have none, nor have those of 0.1.0."""
    lines = content.splitlines(keepends=True)
    comments = [line for line in lines if line[:1] in (b"c", b"#")]
    seals = [line for line in comments if SEAL.encode() in line]
    if not any(OURS.encode() in line or line.startswith(f"c {OFFSET_MARK}".encode()) for line in comments):
        return
    told = seals[0].partition(SEAL.encode())[2].strip().decode() if len(seals) == 2 else ""
    if hashlib.sha256(b"".join(line for line in lines if line not in seals)).hexdigest() != told:
        raise ValueError("it does not match its digest")


def _read_bqm(content: bytes) -> Dense:
    dimod = require("dimod", extra="dwave", purpose="reading a bqm file")
    start = len(BQM_MAGIC) + 6
    length = int.from_bytes(content[start - 4 : start], "little")
    header = json.loads(content[start : start + length])
    if not isinstance(header, dict):
        raise ValueError("its header is no mapping")
    if BQM_DIGEST in header and header[BQM_DIGEST] != digest_of_bqm(header, content[start + length :]):
        raise ValueError("it does not match its digest")
    _check_shape(header.get("shape"))
    _check_neighbours(header, content[start + length :])
    bqm = dimod.BinaryQuadraticModel.from_file(content)
    bqm.change_vartype("BINARY", inplace=True)
    vectors = bqm.to_numpy_vectors(variable_order=sorted(bqm.variables))
    return _dense(vectors.linear_biases, *vectors.quadratic), float(bqm.offset)


def _check_shape(shape: Any) -> None:
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"its shape is {shape!r}")
    if shape[0] > MAX_DENSE_VARIABLES:
        raise ValueError(f"it has {shape[0]} variables, and {MAX_DENSE_VARIABLES} are the most")


def _check_neighbours(header: dict[str, Any], rest: bytes) -> None:
    """Raise where a variable is coupled to one that is not there: dimod does not look, and the process would end."""
    size, couplings = header["shape"]
    whole = ("int32", "int64")
    if header["dtype"] not in ("float32", "float64") or header["itype"] not in whole or header["ntype"] not in whole:
        raise ValueError("its numbers have unusual types")
    value = np.dtype(header["dtype"])
    of_variables = np.dtype([("first", header["ntype"]), ("bias", value)])
    of_couplings = np.dtype([("other", header["itype"]), ("bias", value)])
    ends = value.itemsize + size * of_variables.itemsize
    if len(rest) < ends + 2 * couplings * of_couplings.itemsize:
        raise ValueError("it was cut short")
    first = np.append(np.frombuffer(rest, of_variables, size, value.itemsize)["first"], 2 * couplings)
    others = np.frombuffer(rest, of_couplings, 2 * couplings, ends)["other"]
    if size and (first[0] != 0 or (np.diff(first) < 0).any()):
        raise ValueError("its neighbourhoods overlap")
    if len(others) and not 0 <= others.min() <= others.max() < size:
        raise ValueError("it couples variables that it has not")


def _read_text(text: str) -> Dense:
    """The format of qbsolv, or dimod's COO: the lines are the same; comments start with `c` or `#`."""
    comments, numbers, stated = [], [], None
    for line in filter(None, map(str.strip, text.splitlines())):
        if line[0] in "c#":
            comments.append(line[1:].strip())
        elif line[0] == "p":
            _, _, _, *counts = line.split()
            stated = tuple(map(int, counts))
        else:
            row, column, value = line.split()
            numbers.append((int(row), int(column), float(value)))
    if not numbers:
        raise ValueError("it has no coefficients")
    over_spins = _is_over_spins(comments, stated is not None)
    rows, columns = np.array([pair[:2] for pair in numbers], dtype=np.intp).T
    values = np.array([triplet[2] for triplet in numbers])
    on_diagonal = rows == columns
    size = int(max(rows.max(), columns.max())) + 1
    if stated is not None:
        nodes = int(np.count_nonzero(on_diagonal))
        size = max(size, _stated_size(stated, nodes, len(numbers) - nodes))
    if min(rows.min(), columns.min()) < 0 or size > MAX_DENSE_VARIABLES:
        raise ValueError(f"its variables go from {min(rows.min(), columns.min())} to {size - 1}")
    linear = np.zeros(size)
    linear[rows[on_diagonal]] = values[on_diagonal]
    couplings = rows[~on_diagonal], columns[~on_diagonal], values[~on_diagonal]
    offset = sum(float(json.loads(c.removeprefix(OFFSET_MARK))) for c in comments if c.startswith(OFFSET_MARK))
    if over_spins:
        linear, couplings, offset = _of_spins(linear, *couplings, offset)
    return _dense(linear, *couplings), float(offset)


def _is_over_spins(comments: list[str], is_qubo: bool) -> bool:
    """Whether the variables are spins, as a text has to say unless it begins with `p qubo`."""
    kinds = {comment.removeprefix(f"{OURS} ") for comment in comments if "vartype" in comment}
    if kinds not in ({"vartype=BINARY"}, {"vartype=SPIN"}) and not (is_qubo and not kinds):
        raise ValueError(
            f"of its variables it says {sorted(kinds) or 'nothing'}; expected a line `# vartype=BINARY` or "
            "`# vartype=SPIN`, or one of the kind `p qubo 0 nodes nodes couplers`"
        )
    return kinds == {"vartype=SPIN"}


def _stated_size(stated: tuple[int, ...], nodes: int, couplers: int) -> int:
    """How many variables the `p` line states; it has to be right about the lines that follow."""
    size, *counts = stated
    if counts != [nodes, couplers]:
        raise ValueError(f"it has {nodes} nodes and {couplers} couplers and states {counts}")
    return size


def _of_spins(
    fields: NDArray[np.float64],
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    values: NDArray[np.float64],
    offset: float,
) -> tuple[NDArray[np.float64], tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]], float]:
    """The same energies over bits, `s = 2b − 1`."""
    linear = 2 * fields
    np.subtract.at(linear, rows, 2 * values)
    np.subtract.at(linear, columns, 2 * values)
    return linear, (rows, columns, 4 * values), float(offset - fields.sum() + values.sum())


def _dense(
    linear: NDArray[np.float64], rows: NDArray[np.intp], columns: NDArray[np.intp], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    quadratic = np.zeros((len(linear), len(linear)))
    np.add.at(quadratic, (rows, columns), values / 2)
    quadratic += quadratic.T
    quadratic[np.diag_indices_from(quadratic)] = linear
    return quadratic
