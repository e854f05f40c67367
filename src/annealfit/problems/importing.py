"""Exports read back: the dense QUBO and its offset from a file of any format, and its digest."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError
from annealfit._support.files import check_regular, parse_json, read_arrays
from annealfit.problems.export import FORMATS, MAX_DENSE_VARIABLES, OFFSET_MARK, QS_OFFSET_MARK, Terms

Dense = tuple[NDArray[np.float64], float]  # Q, symmetric with linear terms on its diagonal, and the offset

_UNREADABLE = (KeyError, ValueError, TypeError, IndexError, EOFError, OverflowError, RecursionError)
_DIGEST = re.compile(rb'digest(?:=|": ")([0-9a-f]{64})')
_EARLIER = re.compile(rb'annealfit[ _]sha256(?:=|": ")[0-9a-f]{64}')  # of 0.2.0, no longer looked at
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_BQM_MAGIC = b"DIMODBQM"


def read(path: str | os.PathLike[str]) -> Dense:
    """Return `(Q, offset)` of a file of any format that `export.write` wrote: `E(b) = bᵀQb + offset`.

    The format is recognised by the content. Files of other programs are read too; their offset is 0 unless a comment
    states it. A text with neither `p qubo` nor `# vartype=` is refused: its variables may be bits or spins, and it may
    be a part of a longer text. A text that starts with `n m` is read as QOBLIB's or Biq Mac's if a comment or the
    suffix `.qs` or `.sparse` says so: the same lines can be a graph.
    """
    check_regular(path)
    content = Path(path).read_bytes()
    stated = _DIGEST.search(content)
    digest = stated and stated[1].decode()
    try:
        if content.startswith(b"PK"):
            arrays = read_arrays(path)
            quadratic, digest = arrays["qubo"], arrays["digest"].item() if "digest" in arrays else None
            if quadratic.dtype != np.float64 or not np.array_equal(quadratic, quadratic.T):
                raise ValueError("its matrix is not symmetric, or not of double precision")
            terms = Terms(np.triu(quadratic) + np.triu(quadratic, 1), float(arrays["offset"].item()))
        elif content.startswith(_BQM_MAGIC):
            terms = _read_bqm(content)
        elif content.lstrip().startswith(b"{"):
            terms = _read_bqpjson(content)
        else:
            terms = _read_text(content.decode(), Path(path).suffix)
        if not (np.isfinite(terms.upper).all() and np.isfinite(terms.offset)):
            raise ValueError("it holds NaN or infinity")
        is_ours = any(mark in content for mark in (b"annealfit", b"digest", b"\nc offset="))
        if digest not in (None, terms.digest) or (digest is None and is_ours and not _EARLIER.search(content)):
            raise ValueError("it does not match its digest")
    except FileFormatError:
        raise
    except _UNREADABLE as error:
        raise FileFormatError(
            f"{os.fspath(path)} is not a problem in one of the formats {', '.join(FORMATS)} ({error}); export it again"
        ) from error
    return _over_bits(terms)


def digest(dense: Dense) -> str:
    """Return the SHA-256 of the coefficients: the same from any format but `ising`, whose coefficients are rounded.

    It covers the upper triangle of `bᵀQb + offset` row by row (the linear term, then the couplings to later variables,
    each `Q_ij + Q_ji`) and the offset, as little-endian 64-bit floats.

    >>> digest((np.array([[1.0, 0.5], [0.5, -1.0]]), 0.25))[:12]
    '6f6bbdc5e224'
    """
    quadratic, offset = dense
    return Terms(np.triu(quadratic) + np.triu(quadratic.T, 1), offset).digest


def _over_bits(terms: Terms) -> Dense:
    """Return the dense QUBO of the same energies; spins are s = 2b − 1."""
    linear, couplings, offset = terms.upper.diagonal(), np.triu(terms.upper, 1), float(terms.offset)
    if terms.of_spins:
        offset += float(couplings.sum() - linear.sum())
        linear = 2 * (linear - couplings.sum(axis=0) - couplings.sum(axis=1))
        couplings = 4 * couplings
    return np.diag(linear) + (couplings + couplings.T) / 2, offset


def _read_bqm(content: bytes) -> Terms:
    """Read dimod's format with NumPy: dimod aborts the process where a variable is coupled to one that is not there."""
    start = len(_BQM_MAGIC) + 6  # two bytes of version, four of the header's length
    end = start + int.from_bytes(content[start - 4 : start], "little")
    header = parse_json(content[start:end])
    (size, count), spins = header["shape"], {"BINARY": False, "SPIN": True}[header["vartype"]]
    value, index, place = (np.dtype(header[name]) for name in ("dtype", "itype", "ntype"))
    if not 0 <= size <= MAX_DENSE_VARIABLES or count < 0 or (value.kind, index.kind, place.kind) != ("f", "i", "i"):
        raise ValueError(f"it has {size} variables, at most {MAX_DENSE_VARIABLES} are read, or unusual numbers")
    offset = np.frombuffer(content, value, 1, end)
    linear = np.frombuffer(content, [("first", place), ("bias", value)], size, end + offset.nbytes)
    quadratic = np.frombuffer(
        content, [("other", index), ("bias", value)], 2 * count, end + offset.nbytes + linear.nbytes
    )
    counts = np.diff(linear["first"], append=2 * count)
    if counts.min(initial=0) < 0 or counts.sum() != 2 * count:
        raise ValueError("the places of its couplings are not in order")
    one, other = np.repeat(np.arange(size), counts), quadratic["other"]
    symmetric = np.diag(linear["bias"].astype(np.float64))
    if len(other) and not 0 <= other.min() <= other.max() < size:
        raise ValueError("it couples variables that it does not have")
    symmetric[one, other] = quadratic["bias"]
    if not np.array_equal(symmetric, symmetric.T):
        raise ValueError("a coupling has two values")
    labels, rest = header.get("variables"), content[end + offset.nbytes + linear.nbytes + quadratic.nbytes :]
    if labels is True:  # a section of its own: its name, its length, JSON
        labels = parse_json(rest[8 : 8 + int.from_bytes(rest[4:8], "little")])
    elif rest and not _DIGEST.fullmatch(rest):
        raise ValueError("it does not match its digest")
    if labels:
        order = sorted(range(size), key=labels.__getitem__)
        symmetric = symmetric[np.ix_(order, order)]
    return Terms(np.triu(symmetric), float(offset[0]), spins)


def _read_bqpjson(content: bytes) -> Terms:
    document = parse_json(content)
    if document["version"] != "1.0.0" or document["variable_domain"] not in ("boolean", "spin"):
        raise ValueError(f"it is bqpjson {document['version']!r} over {document['variable_domain']!r}")
    ids = sorted(document["variable_ids"])
    places = {name: place for place, name in enumerate(ids)}
    if len(places) < len(ids) or not 0 < len(ids) <= MAX_DENSE_VARIABLES:
        raise ValueError(f"it has {len(ids)} variables, {len(places)} different ones")
    upper, scale = np.zeros((len(ids), len(ids))), float(document["scale"])
    for term in document["linear_terms"]:
        upper[places[term["id"]], places[term["id"]]] += term["coeff"]
    for term in document["quadratic_terms"]:
        first, second = sorted((places[term["id_tail"]], places[term["id_head"]]))
        if first == second:
            raise ValueError("a quadratic term couples a variable to itself")
        upper[first, second] += term["coeff"]
    return Terms(scale * upper, scale * float(document["offset"]), document["variable_domain"] == "spin")


def _read_text(text: str, suffix: str) -> Terms:
    """Read the text of qbsolv, dimod (COO), or QOBLIB and Biq Mac: `i j value` per line; comments are `c` or `#`."""
    if _CONTROL.search(text):
        raise ValueError("it has control characters")
    lines = list(filter(None, map(str.strip, text.splitlines())))
    comments = [line[1:].strip() for line in lines if line[0] in "c#"]
    programs = [line.split()[3:] for line in lines if line[0] == "p"]  # p qubo 0 nodes nodes couplers
    rows = [line.split() for line in lines if line[0] not in "c#p"]
    if not rows:
        raise ValueError("it has no coefficients")
    is_symmetric = suffix in (".qs", ".sparse") or any(
        comment.startswith((QS_OFFSET_MARK, "annealfit symmetric")) for comment in comments
    )
    if is_symmetric:  # `n m`, then m entries of a symmetric matrix, from 1 on
        (size, count), *rows = rows
        n, stated, of_spins = int(size), int(count), False
    elif len(rows[0]) == 2:
        raise ValueError("it may be a graph, or a QUBO of QOBLIB or Biq Mac: name it .qs or .sparse if it is one")
    else:
        of_spins = _is_over_spins(comments, bool(programs))
    pairs = np.array([[int(row), int(column)] for row, column, _ in rows], dtype=np.intp).reshape(-1, 2) - is_symmetric
    values = np.array([float(row[2]) for row in rows])
    low, high = pairs.min(axis=1, initial=MAX_DENSE_VARIABLES), pairs.max(axis=1, initial=0)
    if is_symmetric:
        if stated != len(rows) or len(np.unique(low * n + high)) < len(rows):
            raise ValueError(f"it has {len(rows)} entries and states {stated}, or one of them twice")
        values = np.where(low < high, 2 * values, values)
    else:
        n = int(high.max()) + 1
        nodes = int((low == high).sum())
        for most, *counts in (map(int, program) for program in programs):
            n = max(n, most)
            if counts != [nodes, len(rows) - nodes]:
                raise ValueError(f"it has {nodes} nodes and {len(rows) - nodes} couplers and states {counts}")
    if not 0 < n <= MAX_DENSE_VARIABLES or (pairs < 0).any() or (pairs >= n).any():
        raise ValueError(f"its variables go from {pairs.min()} to {pairs.max()}, of {n}")
    upper = np.zeros((n, n))
    np.add.at(upper, (low, high), values)
    mark = QS_OFFSET_MARK if is_symmetric else OFFSET_MARK
    offset = sum(float(comment.removeprefix(mark)) for comment in comments if comment.startswith(mark))
    return Terms(upper, offset, of_spins)


def _is_over_spins(comments: list[str], is_qubo: bool) -> bool:
    """Return whether the variables are spins; a text without `p qubo` has to state it."""
    kinds = {word for comment in comments for word in comment.split() if word.startswith("vartype")}
    if kinds not in ({"vartype=BINARY"}, {"vartype=SPIN"}) and not (is_qubo and not kinds):
        raise ValueError(
            f"of its variables it says {sorted(kinds) or 'nothing'}; expected a line `# vartype=BINARY` or "
            "`# vartype=SPIN`, or one of the kind `p qubo 0 nodes nodes couplers`"
        )
    return kinds == {"vartype=SPIN"}
