"""Rows of Dask arrays: sums are worked out where the chunks are; weights travel, rows do not.

With a `distributed.Client` the chunks are made once and stay in the workers' memory (which Dask spills to disk where
it must); a chunk that is lost with its worker is made again elsewhere. Without one, chunks are made anew at every
pass, in threads of this process, so that the arrays need not fit into its memory.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, require
from annealfit._support.threads import blas_threads
from annealfit.data.rows.base import Chunk, Rows, Term, add_up, spread_positions
from annealfit.data.rows.in_memory import InMemoryRows
from annealfit.data.rows.tables import TableChunk, check_table, is_single, keep_memory, read_slice

_SUMMED_AT_ONCE = 8  # partial sums; so they are added in the same order, whoever works them out


@dataclass
class Traffic:
    """What passes over the rows have sent: terms to the workers, each worker once, and sums back."""

    passes: int = 0
    bytes_of_terms: int = 0
    bytes_of_sums: int = 0


def is_dask(value: Any) -> bool:
    """Whether it is a collection of Dask's, asked without importing Dask."""
    return hasattr(value, "__dask_graph__")


def current_client() -> Any:
    """The `distributed.Client` that Dask would use here; None where there is none."""
    distributed = sys.modules.get("distributed")  # who has a client has imported it
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


class DaskRows(Rows):
    """Features (N, d), labels (N,) and perhaps weights (N,), as Dask arrays or, the last two, in memory.

    Labels become positions in `classes`, which are found if they are not given. Results depend on the chunks in the
    last bits, and on nothing else.
    """

    chunks_are_cached = False
    is_checked = True

    def __init__(
        self,
        features: Any,
        labels: Any,
        weights: Any = None,
        classes: NDArray[Any] | None = None,
    ) -> None:
        self._dask = require("dask", extra="dask", purpose="training on Dask arrays")
        self.traffic = Traffic()
        arrays = _aligned(features, labels, weights)
        self.is_rounded = is_single(features)
        if classes is None:
            found = self._dask.compute([self._dask.delayed(np.unique)(block) for block in _blocks(arrays[1])])[0]
            classes = np.unique(np.concatenate(found))
        self._classes, self.n_parameters, self.n_classes = classes, features.shape[1] + 1, len(classes)
        of_weights = _blocks(arrays[2]) if arrays[2] is not None else [None] * len(arrays[0].chunks[0])
        known = self._dask.delayed(classes, traverse=False, pure=False)
        make = self._dask.delayed(make_chunk, pure=False)
        self._sizes = [size for size in arrays[0].chunks[0] if size]
        parts = zip(arrays[0].chunks[0], _blocks(arrays[0]), _blocks(arrays[1]), of_weights, strict=True)
        self._keep([make(*blocks, known) for size, *blocks in parts if size])
        self._check()

    def _keep(self, pieces: Sequence[Any]) -> None:
        """Let the pieces stay where they are made, if that is elsewhere."""
        self._pieces = list(pieces if current_client() is None else self._dask.persist(*pieces))

    def _check(self) -> None:
        self._weights_of_classes, wrong = self.sum(_FirstLook(self.n_classes))
        if wrong:
            raise InvalidInputError(
                f"Input X contains NaN or infinity ({int(wrong)} values); fill or leave out such rows"
            )
        if not self._weights_of_classes.all():
            missing = self._classes[self._weights_of_classes == 0].tolist()
            raise InvalidInputError(f"the classes {missing[:5]} have no row that weighs something; leave them out")

    def weigh_classes(self, factors: NDArray[np.float64]) -> None:
        """Multiply the weights by these factors (C,), one per class."""
        change = self._dask.delayed(reweighed, pure=False)
        known = self._dask.delayed(factors, traverse=False, pure=False)
        self._keep([change(piece, known) for piece in self._pieces])
        self._weights_of_classes = self._weights_of_classes * factors

    @property
    def classes(self) -> NDArray[Any]:
        """What the labels stand for."""
        return self._classes

    @property
    def weights_of_classes(self) -> NDArray[np.float64]:
        """What the rows of each class weigh together, (C,)."""
        return self._weights_of_classes

    def chunks(self) -> Iterable[Chunk]:
        """The chunks, brought here one after another: only for those who cannot do with sums."""
        return (self._dask.compute(piece)[0] for piece in self._pieces)

    def sum(self, term: Term) -> tuple[Any, ...]:
        """The term is sent to the chunks, and what it finds is added up on the way back, always in the same order."""
        apply, add = (self._dask.delayed(function, pure=False) for function in (_applied, add_up))
        sent = self._dask.delayed(term, traverse=False, pure=False)
        found = [apply(sent, piece, self.n_classes) for piece in self._pieces]
        while len(found) > 1:
            found = [add(found[first : first + _SUMMED_AT_ONCE]) for first in range(0, len(found), _SUMMED_AT_ONCE)]
        (total,) = self._dask.compute(found[0])
        self._count(term, total)
        return total

    def sample(self, count: int) -> Rows:
        """Rows drawn at random, in their order, brought here."""
        total = sum(self._sizes)
        chosen = np.arange(total)
        if total > count:
            chosen = np.sort(np.random.default_rng(0).choice(total, count, replace=False))
        picked = self._dask.compute([piece for piece, _ in self._picked(chosen)])[0]
        weights = None if picked[0].weights is None else np.concatenate([part.weights for part in picked])
        features, labels = (np.concatenate([getattr(part, name) for part in picked]) for name in ("features", "labels"))
        return InMemoryRows(features, labels, self.n_classes, weights)

    def thinned(self, fewest: int) -> Rows:
        """Picked where the chunks are, at every pass: they are not stored twice."""
        chosen = spread_positions(sum(self._sizes), fewest)
        if len(chosen) == sum(self._sizes):
            return self
        rows = object.__new__(DaskRows)
        pieces, sizes = (list(found) for found in zip(*self._picked(chosen), strict=True))
        rows.__dict__.update(
            _dask=self._dask, _classes=self._classes, traffic=self.traffic, _pieces=pieces, _sizes=sizes
        )
        rows.n_parameters, rows.n_classes = self.n_parameters, self.n_classes
        rows._weights_of_classes, _ = rows.sum(_FirstLook(self.n_classes))
        return rows

    def _picked(self, chosen: NDArray[np.intp]) -> Iterator[tuple[Any, int]]:
        """Of every chunk the rows that are among the chosen ones, if there are any, and how many."""
        pick = self._dask.delayed(_picked, pure=False)
        edges = np.concatenate([[0], np.cumsum(self._sizes)])
        parts = np.split(chosen, np.searchsorted(chosen, edges[1:-1]))
        for piece, own, first in zip(self._pieces, parts, edges[:-1], strict=True):
            if len(own):
                yield pick(piece, own - first), len(own)

    @cached_property
    def total_weight(self) -> float:
        """Known since the rows were checked."""
        return float(self._weights_of_classes.sum())

    @cached_property
    def entries(self) -> int:
        """As above."""
        return sum(self._sizes) * self.n_parameters

    @cached_property
    def class_shares(self) -> NDArray[np.float64]:
        """As above."""
        return self._weights_of_classes / self.total_weight

    def digest(self) -> str:
        """A digest of the digests of all chunks, which are worked out where these are."""
        made = self._dask.delayed(_digest, pure=False)
        found = self._dask.compute([made(piece) for piece in self._pieces])[0]
        return hashlib.sha256("".join(found).encode()).hexdigest()

    def _count(self, term: Term, total: tuple[Any, ...]) -> None:
        cloudpickle = require("cloudpickle", extra="dask", purpose="training on Dask arrays")
        self.traffic.passes += 1
        self.traffic.bytes_of_terms += len(cloudpickle.dumps(term))
        self.traffic.bytes_of_sums += sum(np.asarray(value).nbytes for value in total)

    def __reduce__(self) -> Any:
        raise InvalidInputError("rows of Dask arrays stay where they are; a term must not hold on to them")


def make_chunk(features: Any, labels: Any, weights: Any, classes: NDArray[Any]) -> TableChunk:
    """A chunk of blocks of arrays, on a worker; labels become positions in the classes."""
    given = np.asarray(labels)
    positions = np.minimum(np.searchsorted(classes, given), len(classes) - 1)
    if not (classes[positions] == given).all():
        unknown = np.setdiff1d(given, classes).tolist()
        raise InvalidInputError(f"there are labels {unknown[:5]} that are not among the classes trained on")
    checked = None if weights is None else np.asarray(weights, dtype=np.float64)
    if checked is not None and not (checked >= 0).all():
        raise InvalidInputError("sample_weight must hold numbers of at least 0")
    return TableChunk(read_slice(np.ascontiguousarray(features), 0, len(given)), positions, checked)


def reweighed(chunk: TableChunk, factors: NDArray[np.float64]) -> TableChunk:
    """The chunk with its rows' weights multiplied by their classes' factors."""
    own = factors[chunk.labels]
    return TableChunk(chunk.features, chunk.labels, own if chunk.weights is None else own * chunk.weights)


@dataclass(frozen=True)
class _FirstLook:
    """Term: what each class weighs, and how many features are no numbers."""

    n_classes: int

    def __call__(self, chunk: Chunk) -> tuple[NDArray[np.float64], int]:
        (features,) = chunk.content()
        wrong = 0 if np.isfinite(features.sum(dtype=np.float64)) else int((~np.isfinite(features)).sum())
        return chunk.class_weights(self.n_classes), wrong


def _applied(term: Term, chunk: TableChunk, n_classes: int) -> tuple[Any, ...]:
    keep_memory()
    with blas_threads(0):  # the chunks are what is done in parallel
        return add_up(map(term, chunk.parts(n_classes)))


def _picked(chunk: TableChunk, positions: NDArray[np.intp]) -> TableChunk:
    weights = None if chunk.weights is None else chunk.weights[positions]
    return TableChunk(chunk.features[positions], chunk.labels[positions], weights)


def _digest(chunk: TableChunk) -> str:
    found = hashlib.sha256(np.ascontiguousarray(chunk.features).tobytes())
    found.update(chunk.labels.astype(np.int64).tobytes())
    if chunk.weights is not None:
        found.update(chunk.weights.tobytes())
    return found.hexdigest()


def _blocks(array: Any) -> list[Any]:
    return array.to_delayed().ravel().tolist()


def _aligned(features: Any, labels: Any, weights: Any) -> tuple[Any, Any, Any]:
    """All as Dask arrays with the row chunks of the features, whose rows are whole."""
    if not hasattr(features, "chunks"):
        raise InvalidInputError(f"X is a Dask {type(features).__name__}; pass an array: X.to_dask_array(lengths=True)")
    if np.isnan(features.shape).any():
        raise InvalidInputError("the sizes of X's chunks are not known; call X.compute_chunk_sizes() before")
    check_table(features)
    return (
        features.rechunk({1: -1}),
        _chunked_alike(labels, features, "y"),
        None if weights is None else _chunked_alike(weights, features, "sample_weight"),
    )


def _chunked_alike(values: Any, features: Any, name: str) -> Any:
    if is_dask(values) and not hasattr(values, "chunks"):
        raise InvalidInputError(f"{name} is a Dask {type(values).__name__}; pass an array: to_dask_array(lengths=True)")
    given: Any = values if is_dask(values) else np.asarray(values)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if np.isnan(given.shape).any():
        raise InvalidInputError(f"the sizes of {name}'s chunks are not known; call {name}.compute_chunk_sizes() before")
    if given.shape != features.shape[:1]:
        raise InvalidInputError(f"{name} has shape {given.shape}; expected ({features.shape[0]},), one per row of X")
    chunks = (features.chunks[0],)
    if is_dask(values):
        return given.rechunk(chunks)
    return require("dask.array", extra="dask", purpose="training on Dask arrays").from_array(given, chunks=chunks)


def _register_size() -> None:
    """Tell Dask how large a chunk is: by that it decides where to work, and what to spill."""
    from dask.sizeof import sizeof

    @sizeof.register(TableChunk)
    def size_of_chunk(chunk: TableChunk) -> int:
        return chunk.features.nbytes + chunk.labels.nbytes + (0 if chunk.weights is None else chunk.weights.nbytes)


if "dask" in sys.modules:  # as on every worker, and wherever there is a Dask array
    _register_size()
