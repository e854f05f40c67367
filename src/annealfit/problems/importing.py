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
from annealfit._support.files import check_regular, parse_json
from annealfit.problems.export import (
    BQM_DIGEST,
    BQM_MAGIC,
    BQPJSON_DIGEST,
    FORMATS,
    MAX_DENSE_VARIABLES,
    OFFSET_MARK,
    OURS,
    QS_OFFSET_MARK,
    SEAL,
    digest_of_bqm,
    digest_of_bqpjson,
    read_checked_arrays,
)

Dense = tuple[NDArray[np.float64], float]  # Q, symmetric with linear terms on its diagonal, and the offset

_UNREADABLE = (KeyError, ValueError, TypeError, IndexError, EOFError, OverflowError, RecursionError, struct.error)


def read(path: str | os.PathLike[str]) -> Dense:
    """Return `(Q, offset)` of a file of any format that `export.write` wrote: `E(b) = bᵀQb + offset`.

    The format is recognised by the content. Files of other programs are read too; their offset is 0 unless a comment
    states it. A text with neither `p qubo` nor `# vartype=` is refused: its variables may be bits or spins, and it may
    be a part of a longer text. A text that starts with `n m` is read as QOBLIB's or Biq Mac's if a comment or the
    suffix `.qs` or `.sparse` says so: the same lines can be a graph.
    """
    check_regular(path)
    content = Path(path).read_bytes()
    try:
        if content.startswith(b"PK"):
            arrays = read_checked_arrays(path)
            dense = arrays["qubo"], arrays["offset"].item()
        elif content.startswith(BQM_MAGIC):
            dense = _read_bqm(content)
        elif content.lstrip().startswith(b"{"):
            dense = _read_bqpjson(content)
        elif _is_symmetric_text(content, Path(path).suffix):
            _check_seal(content, expected=1)
            dense = _read_symmetric_text(content.decode())
        else:
            _check_seal(content, expected=2)
            dense = _read_text(content.decode())
        return _checked(*dense)
    except FileFormatError:
        raise
    except _UNREADABLE as error:
        raise FileFormatError(
            f"{os.fspath(path)} is not a problem in one of the formats {', '.join(FORMATS)} ({error}); export it again"
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


def _check_seal(content: bytes, expected: int) -> None:
    """Check the digest of a text of ours, and its number of seals; texts of other programs and of 0.1.0 have none."""
    lines = content.splitlines(keepends=True)
    comments = [line for line in lines if line[:1] in (b"c", b"#")]
    seals = [line for line in comments if SEAL.encode() in line]
    if not any(OURS.encode() in line or line.startswith(f"c {OFFSET_MARK}".encode()) for line in comments):
        return
    stated = seals[0].partition(SEAL.encode())[2].strip().decode() if len(seals) == expected else ""
    if hashlib.sha256(b"".join(line for line in lines if line not in seals)).hexdigest() != stated:
        raise ValueError("it does not match its digest")


def _read_bqm(content: bytes) -> Dense:
    dimod = require("dimod", extra="dwave", purpose="reading a bqm file")
    start = len(BQM_MAGIC) + 6
    end = start + int.from_bytes(content[start - 4 : start], "little")
    header, rest = parse_json(content[start:end]), content[end:]
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


def _read_bqpjson(content: bytes) -> Dense:
    document = parse_json(content)
    if document["version"] != "1.0.0" or document["variable_domain"] not in ("boolean", "spin"):
        raise ValueError(f"it is bqpjson {document['version']!r} over {document['variable_domain']!r}")
    if document["metadata"].get(BQPJSON_DIGEST, None) not in (None, digest_of_bqpjson(document)):
        raise ValueError("it does not match its digest")
    ids = sorted(document["variable_ids"])
    places = {name: place for place, name in enumerate(ids)}
    if len(places) < len(ids) or not 0 < len(ids) <= MAX_DENSE_VARIABLES:
        raise ValueError(f"it has {len(ids)} variables, {len(places)} different ones")
    linear, scale = np.zeros(len(ids)), float(document["scale"])
    for term in document["linear_terms"]:
        linear[places[term["id"]]] += term["coeff"]
    terms = document["quadratic_terms"]
    rows, columns = (np.array([places[term[end]] for term in terms], dtype=np.intp) for end in ("id_tail", "id_head"))
    values = np.array([term["coeff"] for term in terms], dtype=np.float64)
    if (rows == columns).any():
        raise ValueError("a quadratic term couples a variable to itself")
    offset = float(document["offset"])
    if document["variable_domain"] == "spin":
        linear, values, offset = _over_bits(linear, rows, columns, values, offset)
    return _dense(scale * linear, rows, columns, scale * values), scale * offset


def _is_symmetric_text(content: bytes, suffix: str) -> bool:
    """Return whether a text is one of QOBLIB or Biq Mac; without a comment that says so its suffix has to."""
    lines = content.splitlines()
    first = next((line for line in lines if line.strip() and line[:1] not in (b"#", b"c")), b"")
    said = any(line.startswith((b"# " + QS_OFFSET_MARK.encode(), b"# annealfit symmetric")) for line in lines[:100])
    if len(first.split()) != 2 or said or suffix in (".qs", ".sparse"):
        return said or suffix in (".qs", ".sparse")
    raise ValueError("it may be a graph, or a QUBO of QOBLIB or Biq Mac: name it .qs or .sparse if it is one")


def _read_symmetric_text(text: str) -> Dense:
    """Read `n m`, then m entries `i j Q_ij` of a symmetric matrix, from 1 on."""
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    comments = [line[1:].strip() for line in lines if line[0] == "#"]
    (size, count), *entries = (line.split() for line in lines if line[0] != "#")
    n, stated = int(size), int(count)
    if len(entries) != stated or not 0 < n <= MAX_DENSE_VARIABLES:
        raise ValueError(f"it has {len(entries)} entries and states {stated}, of {n} variables")
    quadratic = np.zeros((n, n))
    for row, column, value in entries:
        i, j = int(row) - 1, int(column) - 1
        if not (0 <= i < n and 0 <= j < n) or quadratic[i, j] != 0:
            raise ValueError(f"the entry {row} {column} is there twice, or outside of {n} variables")
        quadratic[i, j] = quadratic[j, i] = float(value)
    stated_offsets = [c.removeprefix(QS_OFFSET_MARK) for c in comments if c.startswith(QS_OFFSET_MARK)]
    return quadratic, sum(map(float, stated_offsets), 0.0)


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
    if over_spins:
        linear, values, offset = _over_bits(linear, rows, columns, values, offset)
    return _dense(linear, rows, columns, values), float(offset)


def _over_bits(
    fields: NDArray[np.float64], rows: NDArray[np.intp], columns: NDArray[np.intp], values: NDArray[Any], offset: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return linear terms, couplings and offset with the same energies over bits, s = 2b − 1."""
    linear = 2 * fields
    np.subtract.at(linear, rows, 2 * values)
    np.subtract.at(linear, columns, 2 * values)
    return linear, 4 * values, float(offset - fields.sum() + values.sum())


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
