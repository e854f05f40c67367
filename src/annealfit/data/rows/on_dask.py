"""Rows of Dask arrays: sums are computed where the chunks are; weights are sent, rows are not.

With a `distributed.Client` the parts of the arrays are computed once and stay in the workers' memory (Dask spills them
to disk if needed); a part that is lost with its worker is computed again elsewhere. Without a client, parts are
computed at every pass, in threads of this process, so that the arrays need not fit into memory.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array, unique_labels, without_extremes
from annealfit._support.errors import ClusterError, InvalidInputError, require
from annealfit._support.threads import blas_threads
from annealfit.data.rows.chunks import Chunk, dense_chunk
from annealfit.data.rows.rows import (
    SINGLE_FEATURES,
    InMemoryRows,
    Rows,
    Term,
    add_up,
    centre_of,
    centre_positions,
    checked_columns,
    chunk_bounds,
    digest_of,
    drawn_positions,
    is_dask,
    keep_memory,
    rows_at_once,
)
from annealfit.data.rows.tables import check_table, read_slice

_SUMMED_AT_ONCE = 8  # partial sums, so that the order of additions is the same on any number of workers
_NO_WORKERS_SECONDS = 60.0  # so long a cluster may be without workers, unless Dask is configured otherwise
_AGAIN = "train again on a cluster that stays, from the checkpoint if there is one (resume=True)"
_LOOK_SECONDS = 1.0  # between two looks at the cluster while it computes


def current_client() -> Any:
    """Return the `distributed.Client` that Dask would use here, or None."""
    distributed = sys.modules.get("distributed")  # loaded wherever there is a client
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


class Part(NamedTuple):
    """Consecutive rows on a worker: one chunk of the Dask arrays. Dask knows the size of a tuple of arrays."""

    features: NDArray[Any]
    labels: NDArray[np.intp]
    weights: Array | None
    start: int

    def take(self, chosen: Any) -> Part:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[chosen]
        return Part(self.features[chosen], self.labels[chosen], weights, self.start)

    def chunks(self, centre: Array | None, n_classes: int) -> Iterator[Chunk]:
        """Yield the rows in chunks of cache size."""
        for first, last in chunk_bounds(self.features, n_classes, rows_at_once(self.features, n_classes)):
            part = self.take(slice(first, last))
            yield dense_chunk(part.features, part.labels, part.weights, self.start + first, centre)


class DaskRows(Rows):
    """Features (N, d), labels (N,) and optional weights (N,) as Dask arrays; labels and weights may be in memory.

    Labels become positions in `classes`, which are found if they are not given. Results depend on the chunks by
    rounding only.
    """

    chunks_are_cached = False
    is_checked = True

    def __init__(
        self,
        features: Any,
        labels: Any,
        weights: Any = None,
        classes: NDArray[Any] | None = None,
        *,
        arithmetic: str = "auto",
    ) -> None:
        self._dask = require("dask", extra="dask", purpose="training on Dask arrays")
        self._client = current_client()
        arrays = _aligned(features, labels, weights)
        if classes is None:
            found = self._computed([self._dask.delayed(unique_labels)(block) for block in _blocks(arrays[1])])
            classes = unique_labels(np.concatenate(found))
        largest = 1.0  # of the weights
        if arrays[2] is not None:
            largest = max(self._computed([self._dask.delayed(_largest)(block) for block in _blocks(arrays[2])]))
        self._classes, self.n_parameters, self.n_classes = classes, features.shape[1] + 1, len(classes)
        self._arithmetic = arithmetic
        of_weights = _blocks(arrays[2]) if arrays[2] is not None else [None] * len(arrays[0].chunks[0])
        known = self._dask.delayed(classes, traverse=False, pure=False)
        make = self._dask.delayed(make_part, pure=False)
        sizes = arrays[0].chunks[0]
        parts = zip(sizes, _blocks(arrays[0]), _blocks(arrays[1]), of_weights, strict=True)
        starts = np.cumsum([0, *sizes])
        self._sizes = [size for size in sizes if size]
        self._keep(
            [make(*blocks, known, int(at), largest) for at, (size, *blocks) in zip(starts, parts, strict=False) if size]
        )
        self._centre: Array | None = None
        if arithmetic == "auto" and features.shape[1] >= SINGLE_FEATURES:
            self._centre = centre_of(np.concatenate([part.features for part in self._at(centre_positions(self.count))]))
        self._first_pass()

    def _keep(self, parts: Sequence[Any]) -> None:
        """Keep the parts in the workers' memory if there is a client."""
        self._parts = list(parts if self._client is None else self._client.persist(list(parts)))

    def _computed(self, delayed: Any) -> Any:
        """Compute delayed values where the parts are; without a client, in threads of this process."""
        if self._client is None:
            return self._dask.compute(delayed)[0]
        return _on_cluster(self._client, self._dask, delayed)

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(self._sizes)

    def _first_pass(self) -> None:
        """Sum columns and weights, look for NaN, and decide on single precision."""
        n_classes = self.n_classes
        sums, safe, chunks, self.weights_of_classes = self.sum(
            lambda chunk: (*checked_columns(chunk), 1, chunk.class_weights(n_classes))
        )
        if not self.weights_of_classes.all():
            missing = self._classes[self.weights_of_classes == 0].tolist()
            raise InvalidInputError(f"the classes {missing[:5]} have no row with a weight above 0; leave them out")
        self.is_single = safe == chunks
        if not self.is_single:
            self._centre = None
        self.columns, self.entries = (float(self.count), sums), self.count * self.n_parameters
        self.total_weight = float(self.weights_of_classes.sum())
        self.class_shares = self.weights_of_classes / self.total_weight

    def weigh_classes(self, factors: Array) -> None:
        """Multiply the weights by factors (C,), one per class."""
        change = self._dask.delayed(reweighed, pure=False)
        known = self._dask.delayed(factors, traverse=False, pure=False)
        self._keep([change(part, known) for part in self._parts])
        self._first_pass()

    @property
    def classes(self) -> NDArray[Any]:
        """Labels, sorted."""
        return self._classes

    def chunks(self) -> Iterable[Chunk]:
        """Return the chunks, computed here one after another."""
        for part in self._parts:
            yield from self._computed(part).chunks(self._centre, self.n_classes)

    def sum(self, term: Term) -> tuple[Any, ...]:
        """Send the term to the parts and add up the results, always in the same order."""
        apply, add = (self._dask.delayed(function, pure=False) for function in (_applied, add_up))
        sent = self._dask.delayed((term, self._centre, self.n_classes), traverse=False, pure=False)
        found = [apply(sent, part) for part in self._parts]
        while len(found) > 1:
            found = [add(found[first : first + _SUMMED_AT_ONCE]) for first in range(0, len(found), _SUMMED_AT_ONCE)]
        return self._computed(found[0])

    def sample(self, count: int) -> Rows:
        """Return rows drawn at random, in their order, in memory."""
        picked = self._at(drawn_positions(self.count, count))
        weights = None if picked[0].weights is None else np.concatenate([part.weights for part in picked])
        features, labels = (np.concatenate([getattr(part, name) for part in picked]) for name in ("features", "labels"))
        return InMemoryRows(features, labels, self.n_classes, weights, arithmetic=self._arithmetic)

    def _at(self, chosen: NDArray[np.intp]) -> list[Any]:
        """Return the rows at sorted positions, part by part."""
        take = self._dask.delayed(Part.take, pure=False)
        edges = np.concatenate([[0], np.cumsum(self._sizes)])
        own = np.split(chosen, np.searchsorted(chosen, edges[1:-1]))
        picked = zip(self._parts, own, edges[:-1], strict=True)
        return self._computed([take(part, each - first) for part, each, first in picked if len(each)])

    def digest(self) -> str:
        """Return a digest of the digests of all parts, which are computed on the workers."""
        made = self._dask.delayed(_digest, pure=False)
        found = self._computed([made(part) for part in self._parts])
        return hashlib.sha256("".join(found).encode()).hexdigest()

    def __reduce__(self) -> Any:
        raise InvalidInputError("rows of Dask arrays cannot be sent; a term must not refer to them")


def _on_cluster(client: Any, dask: Any, delayed: Any) -> Any:
    """Compute on the client's cluster, and look whether it is still there."""
    from distributed import wait

    limit = dask.utils.parse_timedelta(dask.config.get("distributed.scheduler.no-workers-timeout", None))
    limit, busy = _NO_WORKERS_SECONDS if limit is None else limit, time.monotonic()
    try:
        futures = client.compute(delayed)
        while True:
            with suppress(TimeoutError):
                wait(futures, timeout=_LOOK_SECONDS)
                return client.gather(futures)
            if client.nthreads():
                busy = time.monotonic()
            elif time.monotonic() - busy > limit:
                raise ClusterError(f"the Dask cluster has had no workers for {limit:g} seconds; {_AGAIN}")
    except Exception as error:  # Dask's errors have no common base
        if client.status != "running":
            raise ClusterError(
                f"the Dask client was closed while it held the rows, or lost its scheduler; {_AGAIN}"
            ) from error
        if type(error).__name__ == "NoWorkerError":
            raise ClusterError(f"{error}; {_AGAIN}") from error
        raise


def _largest(weights: Any) -> float:
    """Return the largest weight of a block; what are no weights is refused."""
    given = np.asarray(weights)
    if given.dtype.kind not in "fiub" or not (np.isfinite(given).all() and (given >= 0).all()):
        raise InvalidInputError("sample_weight must hold finite real numbers of at least 0")
    return float(given.max(initial=0.0))


def make_part(features: Any, labels: Any, weights: Any, classes: NDArray[Any], start: int, largest: float) -> Part:
    """Make a part from blocks of the arrays, on a worker; labels become positions in the classes."""
    given = np.asarray(labels)
    positions = np.minimum(np.searchsorted(classes, given), len(classes) - 1)
    if not (classes[positions] == given).all():
        unknown = np.setdiff1d(given, classes).tolist()
        raise InvalidInputError(f"there are labels {unknown[:5]} that are not among the classes trained on")
    checked = None if weights is None else without_extremes(np.asarray(weights, dtype=np.float64), largest)
    return Part(read_slice(np.ascontiguousarray(features), 0, len(given)), positions, checked, start)


def reweighed(part: Part, factors: Array) -> Part:
    """Return the part with the weights multiplied by the factors of the classes."""
    own = factors[part.labels]
    return part._replace(weights=own if part.weights is None else own * part.weights)


def _applied(sent: tuple[Term, Array | None, int], part: Part) -> tuple[Any, ...]:
    term, centre, n_classes = sent
    keep_memory()
    with blas_threads(0):  # the parts run in parallel
        return add_up(map(term, part.chunks(centre, n_classes)))


def _digest(part: Part) -> str:
    return digest_of([part.features, part.labels, *(() if part.weights is None else (part.weights,))])


def _blocks(array: Any) -> list[Any]:
    return array.to_delayed().ravel().tolist()


def _aligned(features: Any, labels: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return all as Dask arrays with the row chunks of the features, each chunk with all columns."""
    if not hasattr(features, "chunks"):
        raise InvalidInputError(f"X is a Dask {type(features).__name__}; pass an array: X.to_dask_array(lengths=True)")
    if np.isnan(features.shape).any():
        raise InvalidInputError("the sizes of X's chunks are not known; call X.compute_chunk_sizes() before")
    check_table(features)
    return (
        features.rechunk({1: -1}),
        _with_chunks_of(labels, features, "y"),
        None if weights is None else _with_chunks_of(weights, features, "sample_weight"),
    )


def _with_chunks_of(values: Any, features: Any, name: str) -> Any:
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
