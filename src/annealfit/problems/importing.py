"""Exports read back: the dense QUBO and its offset from a file of any format, and its digest."""

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

_UNREADABLE = (KeyError, ValueError, TypeError, IndexError, EOFError, OverflowError, RecursionError, struct.error)


def read(path: str | os.PathLike[str]) -> Dense:
    """Return `(Q, offset)` of a file of any format that `export.write` wrote: `E(b) = bᵀQb + offset`.

    The format is recognised by the content. Files of other programs are read too; their offset is 0 unless a comment
    states it. A text with neither `p qubo` nor `# vartype=` is refused: its variables may be bits or spins, and it may
    be a part of a longer text.
    """
    check_regular(path)
    content = Path(path).read_bytes()
    try:
        if content.startswith(b"PK"):
            arrays = read_checked_arrays(path)
            dense = arrays["qubo"], arrays["offset"].item()
        elif content.startswith(BQM_MAGIC):
            dense = _read_bqm(content)
        else:
            _check_seal(content)
            dense = _read_text(content.decode())
        return _checked(*dense)
    except FileFormatError:
        raise
    except _UNREADABLE as error:
        raise FileFormatError(
            f"{os.fspath(path)} is not a problem in one of the formats bqm, coo, ising, npz or qubo ({error}); "
            "export it again"
        ) from error


def digest(dense: Dense) -> str:
    """Return the SHA-256 of the coefficients: the same from any format but `ising`, whose coefficients are rounded.

    It covers the upper triangle of `bᵀQb + offset` row by row (the linear term, then the couplings to later variables,
    each `Q_ij + Q_ji`) and the offset, as little-endian 64-bit floats.

    >>> digest((np.array([[1.0, 0.5], [0.5, -1.0]]), 0.25))[:12]
    '6f6bbdc5e224'
    """
    quadratic, offset = dense
    upper = np.triu(quadratic) + np.triu(quadratic.T, 1)
    numbers = np.append(upper[np.triu_indices(len(upper))], offset) + 0.0  # −0 becomes 0
    return hashlib.sha256(numbers.astype("<f8").tobytes()).hexdigest()


def _checked(quadratic: NDArray[Any], offset: Any) -> Dense:
    if quadratic.dtype != np.float64 or quadratic.ndim != 2 or quadratic.shape[0] != quadratic.shape[1]:
        raise ValueError(f"its matrix has the shape {quadratic.shape} and the type {quadratic.dtype}")
    if not np.isfinite(quadratic).all() or not isinstance(offset, float) or not math.isfinite(offset):
        raise ValueError("it holds NaN or infinity")
    if not np.array_equal(quadratic, quadratic.T):
        raise ValueError("its matrix is not symmetric")
    return quadratic, offset


def _check_seal(content: bytes) -> None:
    """Check the digest of a text of ours; texts of other programs and of 0.1.0 have none."""
    lines = content.splitlines(keepends=True)
    comments = [line for line in lines if line[:1] in (b"c", b"#")]
    seals = [line for line in comments if SEAL.encode() in line]
    if not any(OURS.encode() in line or line.startswith(f"c {OFFSET_MARK}".encode()) for line in comments):
        return
    stated = seals[0].partition(SEAL.encode())[2].strip().decode() if len(seals) == 2 else ""
    if hashlib.sha256(b"".join(line for line in lines if line not in seals)).hexdigest() != stated:
        raise ValueError("it does not match its digest")


def _read_bqm(content: bytes) -> Dense:
    dimod = require("dimod", extra="dwave", purpose="reading a bqm file")
    start = len(BQM_MAGIC) + 6
    end = start + int.from_bytes(content[start - 4 : start], "little")
    header, rest = json.loads(content[start:end]), content[end:]
    if not isinstance(header, dict):
        raise ValueError("its header is no mapping")
    if BQM_DIGEST in header and header[BQM_DIGEST] != digest_of_bqm(header, rest):
        raise ValueError("it does not match its digest")
    _check_structure(header, rest)
    bqm = dimod.BinaryQuadraticModel.from_file(content)
    bqm.change_vartype("BINARY", inplace=True)
    vectors = bqm.to_numpy_vectors(variable_order=sorted(bqm.variables))
    return _dense(vectors.linear_biases, *vectors.quadratic), float(bqm.offset)


def _check_structure(header: dict[str, Any], rest: bytes) -> None:
    """Raise where a variable is coupled to one that does not exist: dimod does not check, and the process aborts."""
    shape = header.get("shape")
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"its shape is {shape!r}")
    if shape[0] > MAX_DENSE_VARIABLES:
        raise ValueError(f"it has {shape[0]} variables, and {MAX_DENSE_VARIABLES} are the most")
    size, couplings = shape
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
        raise ValueError("it couples variables that it does not have")


def _read_text(text: str) -> Dense:
    """Read the format of qbsolv, or dimod's COO: the lines are the same; comments start with `c` or `#`."""
    comments, numbers, stated = [], [], None
    for line in filter(None, map(str.strip, text.splitlines())):
        if line[0] in "c#":
            comments.append(line[1:].strip())
        elif line[0] == "p":
            _, _, _, *counts = line.split()
            stated = list(map(int, counts))
        else:
            row, column, value = line.split()
            numbers.append((int(row), int(column), float(value)))
    if not numbers:
        raise ValueError("it has no coefficients")
    over_spins = _is_over_spins(comments, stated is not None)
    rows, columns = np.array([triplet[:2] for triplet in numbers], dtype=np.intp).T
    values = np.array([triplet[2] for triplet in numbers])
    is_linear = rows == columns
    least, size = int(min(rows.min(), columns.min())), int(max(rows.max(), columns.max())) + 1
    if stated is not None:
        nodes, couplers = int(is_linear.sum()), int((~is_linear).sum())
        if stated[1:] != [nodes, couplers]:
            raise ValueError(f"it has {nodes} nodes and {couplers} couplers and states {stated[1:]}")
        size = max(size, stated[0])
    if least < 0 or size > MAX_DENSE_VARIABLES:
        raise ValueError(f"its variables go from {least} to {size - 1}")
    linear = np.zeros(size)
    linear[rows[is_linear]] = values[is_linear]
    rows, columns, values = rows[~is_linear], columns[~is_linear], values[~is_linear]
    offset = sum(float(json.loads(c.removeprefix(OFFSET_MARK))) for c in comments if c.startswith(OFFSET_MARK))
    if over_spins:  # the same energies over bits, s = 2b − 1
        offset = offset - linear.sum() + values.sum()
        linear = 2 * linear
        np.subtract.at(linear, rows, 2 * values)
        np.subtract.at(linear, columns, 2 * values)
        values = 4 * values
    return _dense(linear, rows, columns, values), float(offset)


def _is_over_spins(comments: list[str], is_qubo: bool) -> bool:
    """Return whether the variables are spins; a text without `p qubo` has to state it."""
    kinds = {comment.removeprefix(f"{OURS} ") for comment in comments if "vartype" in comment}
    if kinds not in ({"vartype=BINARY"}, {"vartype=SPIN"}) and not (is_qubo and not kinds):
        raise ValueError(
            f"of its variables it says {sorted(kinds) or 'nothing'}; expected a line `# vartype=BINARY` or "
            "`# vartype=SPIN`, or one of the kind `p qubo 0 nodes nodes couplers`"
        )
    return kinds == {"vartype=SPIN"}


def _dense(
    linear: NDArray[np.float64], rows: NDArray[np.intp], columns: NDArray[np.intp], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    quadratic = np.zeros((len(linear), len(linear)))
    np.add.at(quadratic, (rows, columns), values / 2)
    quadratic += quadratic.T
    quadratic[np.diag_indices_from(quadratic)] = linear
    return quadratic
