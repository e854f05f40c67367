"""A chip's working graph and the clique embeddings on it, searched for once and kept on disk.

Every class's problem is dense, so it embeds as a complete graph: each variable becomes a chain of qubits, and every two
chains are coupled. `minorminer.busclique` finds the regular clique embeddings of Pegasus and Zephyr in a tenth of a
second, around defects too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from annealfit._support.errors import AnnealfitError, FileFormatError, MissingDependencyError, require
from annealfit._support.files import read_json, remove_leftovers, replacing

if TYPE_CHECKING:
    import networkx

Embedding = dict[int, tuple[int, ...]]  # variable → its chain of qubits

EXTRA = "qpu"  # the extra that installs D-Wave's packages
CACHE_ENVIRONMENT = "ANNEALFIT_CACHE"
SEARCH_VERSION = 1  # increased when the search for tiles changes: files of an older search are not read
_MOST_BYTES = 20_000_000  # ten times what all qubits of the largest chip take
# The chains of a tile may be this much longer than those of the first: all classes of a call get similar chains.
_LONGER_CHAINS = 1
_WINDOW_GROWTH = 1.4
# For fewer variables than these minorminer 0.2.22 runs out of memory (Zephyr, 5 to 8) or aborts the process (if it
# finds none). A larger clique contains theirs, and its chains are hardly longer.
_SMALLEST_SEARCH = {"zephyr": 9, "chimera": 5}


def longest_chain(embedding: Embedding) -> int:
    """Return the number of qubits in the longest chain."""
    return max(map(len, embedding.values()))


def qubits_of(embeddings: Sequence[Embedding]) -> int:
    """Return the number of physical qubits of all embeddings."""
    return sum(len(chain) for embedding in embeddings for chain in embedding.values())


@dataclass(frozen=True, eq=False)
class Chip:
    """The working qubits and couplers of a device, as a graph of dwave-graphs.

    Embeddings are searched for once: they are cached in memory and on disk (`EmbeddingStore`).

    >>> from annealfit.hardware.topologies import ideal_chip
    >>> chip = ideal_chip("P16")
    >>> chip.largest_clique, longest_chain(chip.clique(57)), len(chip.tiles(38, 10))
    (180, 7, 10)
    """

    name: str
    graph: networkx.Graph
    # Embeddings by number of variables and number of tiles asked for.
    _found: dict[tuple[int, int], tuple[Embedding, ...]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def largest_clique(self) -> int:
        """The most variables that can all be coupled with each other."""
        low, high = 0, 16
        while self.clique(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.clique(middle) else (low, middle)
        return low

    def clique(self, n_variables: int) -> Embedding | None:
        """Return an embedding of the complete graph, or None where there is none."""
        return next(iter(self._find(n_variables, 1)), None)

    def tiles(self, n_variables: int, at_most: int) -> tuple[Embedding, ...]:
        """Return up to `at_most` disjoint embeddings of the complete graph: as many problems go into one call."""
        asked = max((count for size, count in self._found if size == n_variables), default=0)
        found = self._found.get((n_variables, asked), ())
        if len(found) == asked < at_most:  # fewer than asked for means that the chip is full
            found = self._find(n_variables, at_most)
        return found[:at_most]

    @cached_property
    def _store(self) -> EmbeddingStore:
        return EmbeddingStore(self.graph)

    def _find(self, n_variables: int, at_most: int) -> tuple[Embedding, ...]:
        """Return the embeddings in memory or on disk; else search for them, and keep them in both."""
        question = n_variables, at_most
        if question not in self._found:
            found = self._store.load(*question)
            if found is None:
                found = self._search(*question)
                self._store.save(*question, found)
            self._found[question] = found
        return self._found[question]

    def _search(self, n_variables: int, at_most: int) -> tuple[Embedding, ...]:
        first = self.clique(n_variables) if at_most > 1 else _find_clique(n_variables, self.graph)
        if first is None:
            return ()
        found = _nearest_first(first, self.graph, at_most)
        if len(found) < at_most:
            found = max(found, _column_by_column(first, self.graph, at_most), key=len)
        return found


def _find_clique(n_variables: int, graph: networkx.Graph) -> Embedding | None:
    busclique = require("minorminer.busclique", extra=EXTRA, purpose="embedding a problem on a chip")
    if graph.number_of_edges() == 0 and n_variables > 1:
        return None
    size = max(n_variables, _SMALLEST_SEARCH.get(graph.graph["family"], 1))
    # Minorminer's own cache on disk is not used: it holds pickles.
    found: dict[int, Any] = busclique.find_clique_embedding(size, graph, seed=0, use_cache=False)
    chains = [tuple(chain) for chain in found.values()]
    if size > n_variables:
        chains = sorted(chains, key=len)[:n_variables]
    return dict(enumerate(chains)) or None


def _nearest_first(first: Embedding, graph: networkx.Graph, at_most: int) -> tuple[Embedding, ...]:
    """Take the best embedding of the remaining qubits each time: the shortest chains, but gaps between the tiles."""
    found = [first]
    allowed = longest_chain(first) + _LONGER_CHAINS
    left = graph.copy() if at_most > 1 else graph
    while len(found) < at_most:
        left.remove_nodes_from([qubit for chain in found[-1].values() for qubit in chain])
        embedding = _find_clique(len(first), left)
        if embedding is None or longest_chain(embedding) > allowed:
            break
        found.append(embedding)
    return tuple(found)


def _column_by_column(best: Embedding, graph: networkx.Graph, at_most: int) -> tuple[Embedding, ...]:
    """Fill the chip from the left, each tile in the narrowest window that holds it: slower, but more tiles fit."""
    layout = getattr(require("dwave.graphs", extra=EXTRA, purpose="tiling"), f"{graph.graph['family']}_layout")
    positions = layout(graph)
    left = sorted(graph.nodes, key=lambda qubit: tuple(positions[qubit]))
    allowed = longest_chain(best) + _LONGER_CHAINS
    found: list[Embedding] = []
    smallest = window = qubits_of([best])
    while len(found) < at_most and len(left) >= smallest:
        embedding = _find_clique(len(best), graph.subgraph(left[:window]).copy())
        if embedding is not None and longest_chain(embedding) <= allowed:
            found.append(embedding)
            taken = {qubit for chain in embedding.values() for qubit in chain}
            left = [qubit for qubit in left if qubit not in taken]
            # The next tile needs about as much. A failure costs as much as a success: not from the smallest again.
            window = max(round(window / _WINDOW_GROWTH), smallest)
        elif window >= len(left):
            break
        else:
            window = min(round(window * _WINDOW_GROWTH), len(left))
    return tuple(found)


def cache_folder() -> Path | None:
    """Return the folder that ANNEALFIT_CACHE names, else the user's cache; None (variable empty, no home): no cache."""
    chosen = os.environ.get(CACHE_ENVIRONMENT)
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    try:
        folders = require("platformdirs", extra=EXTRA, purpose="keeping embeddings")
    except MissingDependencyError:  # embeddings are then searched for in every process
        return None
    found = Path(folders.user_cache_dir("annealfit"))
    return found if found.is_absolute() else None


@dataclass(frozen=True, eq=False)
class EmbeddingStore:
    """The files of one chip's embeddings: JSON, checked against the chip when read."""

    graph: networkx.Graph

    def load(self, n_variables: int, asked: int) -> tuple[Embedding, ...] | None:
        """Return the tiles in the file of this question; None without a file that can be used."""
        path = self._path(n_variables, asked)
        try:
            return None if path is None else self._read(path, n_variables, asked)
        except OSError:  # missing, or not readable by this user
            return None
        except FileFormatError as error:
            warnings.warn(f"a file of embeddings is not used, and made again: {error}", stacklevel=3)
            return None

    def save(self, n_variables: int, asked: int, tiles: tuple[Embedding, ...]) -> None:
        """Write the tiles to a file. Where that fails, the next process searches again."""
        path = self._path(n_variables, asked)
        if path is None or not tiles:  # that nothing embeds cannot be checked when read
            return
        chains = [[list(map(int, tile[variable])) for variable in range(n_variables)] for tile in tiles]
        with contextlib.suppress(OSError, AnnealfitError):
            with replacing(path) as file:
                file.write(json.dumps({"content": {"tiles": chains}}).encode())
            remove_leftovers(path.parent)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the chip's qubits and couplers and of the versions of the search."""
        versions = {"search": SEARCH_VERSION, "minorminer": metadata.version("minorminer"), **self.graph.graph}
        digest = hashlib.sha256(json.dumps(versions, sort_keys=True, default=str).encode())
        digest.update(np.sort(np.fromiter(self.graph.nodes, dtype="<i8")).tobytes())
        couplers = np.sort(np.array(list(self.graph.edges), dtype="<i8").reshape(-1, 2), axis=1)
        digest.update(couplers[np.lexsort(couplers.T[::-1])].tobytes())
        return digest.hexdigest()

    def _path(self, n_variables: int, asked: int) -> Path | None:
        folder = cache_folder()
        return None if folder is None else folder / "embeddings" / self.digest[:32] / f"{n_variables}x{asked}.json"

    def _read(self, path: Path, size: int, asked: int) -> tuple[Embedding, ...]:
        document = read_json(path, "a JSON file of embeddings", _MOST_BYTES)
        tiles = [
            [tuple(qubit.whole(minimum=0, maximum=2**31) for qubit in chain.items()) for chain in tile.items(most=size)]
            for tile in document["content"]["tiles"].items(most=asked)
        ]
        # D-Wave's check: chains for all variables, connected, disjoint, and every two of a tile coupled.
        embedding = require("dwave.embedding", extra=EXTRA, purpose="checking embeddings")
        chains = {(number, variable): chain for number, tile in enumerate(tiles) for variable, chain in enumerate(tile)}
        variables = [[(number, variable) for variable in range(size)] for number in range(len(tiles))]
        pairs = [pair for tile in variables for pair in [*combinations(tile, 2), (tile[0], tile[0])]]
        if not tiles or not embedding.is_valid_embedding(chains, pairs, self.graph):
            raise FileFormatError(f"{path}: its tiles are no disjoint embeddings on this chip")
        return tuple(dict(enumerate(tile)) for tile in tiles)
