"""What an embedding is: a chain of qubits for every variable, and whether chains are one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import AnnealfitError, FileFormatError, MissingDependencyError, require
from annealfit._support.files import check_regular, remove_leftovers, replacing
from annealfit._support.schema import Field, check_depth

if TYPE_CHECKING:
    import networkx

Embedding = dict[int, tuple[int, ...]]  # variable → its chain of qubits

EXTRA = "qpu"  # what to install for everything that knows a chip


def longest_chain(embedding: Embedding) -> int:
    """The number of qubits in the longest chain."""
    return max(map(len, embedding.values()))


def qubits_of(embeddings: Sequence[Embedding]) -> int:
    """The number of physical qubits that the embeddings take together."""
    return sum(len(chain) for embedding in embeddings for chain in embedding.values())


def embed_disjointly(
    tiles: Sequence[Embedding], n_variables: int, qubits: NDArray[np.int64], couplers: NDArray[np.int64]
) -> bool:
    """Whether every tile embeds the complete graph of so many variables, and no two share a qubit.

    The chip has these `qubits` and `couplers` (E, 2). As D-Wave's `verify_embedding`, all tiles at once.

    >>> triangle = np.array([[0, 1], [1, 2], [0, 2]])
    >>> embed_disjointly([{0: (0, 1), 1: (2,)}], 2, np.arange(3), triangle)
    True
    >>> embed_disjointly([{0: (0, 2), 1: (1,)}], 2, np.arange(3), triangle[:2])  # 0 and 2 are not coupled
    False
    """
    from scipy.sparse import coo_array  # here: what only names chips does not wait for SciPy
    from scipy.sparse.csgraph import connected_components

    chains = [tile[variable] for tile in tiles for variable in range(n_variables)]
    taken = np.array([qubit for chain in chains for qubit in chain], dtype=np.int64)
    if not all(chains) or not np.isin(taken, qubits).all() or len(np.unique(taken)) < len(taken):
        return False
    chain_of = np.full(1 + int(qubits.max(initial=0)), -1)
    chain_of[taken] = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
    first, second = chain_of[couplers].T
    used = (first >= 0) & (second >= 0)
    within = couplers[used & (first == second)]
    links = coo_array((np.ones(len(within)), tuple(within.T)), shape=(len(chain_of), len(chain_of)))
    alone = len(chain_of) - len(taken)  # indices that are no qubit of a chain: each is a component by itself
    connected = connected_components(links, directed=False)[0] - alone == len(chains)
    between = used & (first != second) & (first // n_variables == second // n_variables)
    pairs = np.unique(np.sort(np.stack([first[between], second[between]]), axis=0), axis=1)
    return bool(connected and pairs.shape[1] == len(tiles) * n_variables * (n_variables - 1) // 2)


CACHE_ENVIRONMENT = "ANNEALFIT_CACHE"
# Counts up when the search for tiles changes, so that files of an older one are not found.
SEARCH_VERSION = 1
_MOST_BYTES = 20_000_000  # ten times what all qubits of the largest chip take


def cache_folder() -> Path | None:
    """The folder of the environment variable ANNEALFIT_CACHE, else the user's cache; None where nothing is kept.

    An empty variable says that nothing is to be kept.
    """
    chosen = os.environ.get(CACHE_ENVIRONMENT)
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    try:
        folders = require("platformdirs", extra=EXTRA, purpose="keeping embeddings")
    except MissingDependencyError:  # it is one of the extra's packages, but no reason not to search
        return None
    found = Path(folders.user_cache_dir("annealfit"))
    return found if found.is_absolute() else None  # without a home there is none


@dataclass(frozen=True, eq=False)
class EmbeddingStore:
    """The files of one chip's embeddings."""

    graph: networkx.Graph

    def load(self, n_variables: int, asked: int) -> tuple[Embedding, ...] | None:
        """The tiles that were found for this question; None if there is no file, or none that can be used."""
        path = self._path(n_variables, asked)
        if path is None:
            return None
        try:
            return self._read(path, n_variables, asked)
        except OSError:  # not there, or not ours to read
            return None
        except FileFormatError as error:
            warnings.warn(f"a file of embeddings is not used, and made again: {error}", stacklevel=3)
            return None

    def save(self, n_variables: int, asked: int, tiles: tuple[Embedding, ...]) -> None:
        """Keep the tiles; where that is not possible they are searched for again next time, and that is all."""
        path = self._path(n_variables, asked)
        if path is None or not tiles:
            return
        content = {
            "graph": self.digest,
            "variables": n_variables,
            "asked": asked,
            "tiles": [[list(map(int, tile[variable])) for variable in range(n_variables)] for tile in tiles],
        }
        document = {"sha256": _digest_of(content), "content": content}
        with contextlib.suppress(OSError, AnnealfitError):
            with replacing(path) as file:
                file.write(json.dumps(document).encode())
            remove_leftovers(path.parent)

    @cached_property
    def digest(self) -> str:
        """What tells this chip, and this way of searching it, from all others."""
        told = {"search": SEARCH_VERSION, "minorminer": metadata.version("minorminer"), **self.graph.graph}
        found = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode())
        for array in (self._qubits, self._couplers):
            found.update(array.astype("<i8").tobytes())
        return found.hexdigest()

    @cached_property
    def _qubits(self) -> NDArray[np.int64]:
        return np.sort(np.fromiter(self.graph.nodes, dtype=np.int64))

    @cached_property
    def _couplers(self) -> NDArray[np.int64]:
        """All couplers (E, 2), the smaller qubit first, sorted."""
        couplers = np.sort(np.array(list(self.graph.edges), dtype=np.int64).reshape(-1, 2), axis=1)
        return couplers[np.lexsort(couplers.T[::-1])]

    def _path(self, n_variables: int, asked: int) -> Path | None:
        folder = cache_folder()
        return None if folder is None else folder / "embeddings" / self.digest[:32] / f"{n_variables}x{asked}.json"

    def _read(self, path: Path, n_variables: int, asked: int) -> tuple[Embedding, ...]:
        check_regular(path)
        if path.stat().st_size > _MOST_BYTES:
            raise FileFormatError(f"{path} has {path.stat().st_size:,} bytes; no embedding takes {_MOST_BYTES:,}")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"{path} is not JSON: {error}") from error
        check_depth(document, str(path))
        whole = Field(document, source=str(path))
        content = whole["content"]
        if whole["sha256"].text() != _digest_of(content.value):
            raise FileFormatError(f"{path} does not match its digest")
        content["graph"].one_of([self.digest])
        content["variables"].whole(minimum=n_variables, maximum=n_variables)
        content["asked"].whole(minimum=asked, maximum=asked)
        tiles = tuple(_tile(tile, n_variables) for tile in content["tiles"].items(most=asked))
        if not embed_disjointly(tiles, n_variables, self._qubits, self._couplers):
            raise FileFormatError(f"{path}: its tiles are no disjoint embeddings on this chip")
        return tiles


def _tile(field: Field, n_variables: int) -> Embedding:
    chains = field.items(most=n_variables)
    if len(chains) < n_variables:
        field.refuse(f"{n_variables} chains")
    return {
        variable: tuple(qubit.whole(minimum=0, maximum=2**31) for qubit in chain.items())
        for variable, chain in enumerate(chains)
    }


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
