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

from annealfit._support.errors import AnnealfitError, FileFormatError, require
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

    Embeddings are searched for once. They are kept in memory and as JSON files, which are checked when they are read.

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

    def _find(self, n_variables: int, at_most: int) -> tuple[Embedding, ...]:
        """Return the tiles in memory or on disk; else search for them, and keep them in both."""
        if (n_variables, at_most) in self._found:
            return self._found[n_variables, at_most]
        folder = cache_folder()
        path = None if folder is None else folder / "embeddings" / self.digest / f"{n_variables}x{at_most}.json"
        found = None if path is None else _read_tiles(path, n_variables, at_most, self.graph)
        if found is None:
            found = self._search(n_variables, at_most)
            if path is not None and found:  # that nothing embeds could not be checked when read
                _write_tiles(path, found)
        self._found[n_variables, at_most] = found
        return found

    def _search(self, n_variables: int, at_most: int) -> tuple[Embedding, ...]:
        best = self.clique(n_variables) if at_most > 1 else _find_clique(n_variables, self.graph)
        if best is None:
            return ()
        if at_most == 1:
            return (best,)
        # The best tile that is left each time leaves gaps; narrow windows from the left on hold more tiles.
        found = _pack(best, self.graph, at_most, narrowest=len(self.graph))
        if len(found) < at_most:
            found = max(found, _pack(best, self.graph, at_most, narrowest=qubits_of([best])), key=len)
        return found

    @cached_property
    def digest(self) -> str:
        """A digest of the qubits, the couplers and the versions of the search."""
        versions = {"search": SEARCH_VERSION, "minorminer": metadata.version("minorminer"), **self.graph.graph}
        parts = versions, sorted(self.graph.nodes), sorted(map(sorted, self.graph.edges))
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


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


def _pack(best: Embedding, graph: networkx.Graph, at_most: int, narrowest: int) -> tuple[Embedding, ...]:
    """Embed one tile after the other, each in a window of the leftmost free qubits, as narrow as can be."""
    layout = getattr(require("dwave.graphs", extra=EXTRA, purpose="tiling"), f"{graph.graph['family']}_layout")
    positions, left = layout(graph), graph.copy()
    free = sorted(graph.nodes, key=lambda qubit: tuple(positions[qubit]))
    allowed = longest_chain(best) + _LONGER_CHAINS
    found: list[Embedding] = []
    window = narrowest
    while len(found) < at_most and free:
        part = left if window >= len(free) else left.subgraph(free[:window]).copy()
        embedding = _find_clique(len(best), part)
        if embedding is not None and longest_chain(embedding) <= allowed:
            found.append(embedding)
            taken = {qubit for chain in embedding.values() for qubit in chain}
            left.remove_nodes_from(taken)
            free = [qubit for qubit in free if qubit not in taken]
            # The next tile needs about as much. A failure costs as much as a success: not from the narrowest again.
            window = max(round(window / _WINDOW_GROWTH), narrowest)
        elif window >= len(free):
            break
        else:
            window = round(window * _WINDOW_GROWTH)
    return tuple(found)


def cache_folder() -> Path | None:
    """Return the folder that ANNEALFIT_CACHE names, else the user's cache; None (variable empty, no home): no cache."""
    chosen = os.environ.get(CACHE_ENVIRONMENT)
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    found = Path(require("platformdirs", extra=EXTRA, purpose="keeping embeddings").user_cache_dir("annealfit"))
    return found if found.is_absolute() else None


def _write_tiles(path: Path, tiles: tuple[Embedding, ...]) -> None:
    """Write the tiles to a file. Where that fails, the next process searches again."""
    chains = [[list(map(int, tile[variable])) for variable in range(len(tile))] for tile in tiles]
    with contextlib.suppress(OSError, AnnealfitError):
        with replacing(path) as file:
            file.write(json.dumps({"content": {"tiles": chains}}).encode())
        remove_leftovers(path.parent)


def _read_tiles(path: Path, size: int, asked: int, graph: networkx.Graph) -> tuple[Embedding, ...] | None:
    """Return the tiles in a file; None if there is none, or with a warning if they are none of this chip."""
    try:
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
        if not tiles or not embedding.is_valid_embedding(chains, pairs, graph):
            raise FileFormatError(f"{path}: its tiles are no disjoint embeddings on this chip")
    except OSError:  # missing, or not readable by this user
        return None
    except FileFormatError as error:
        warnings.warn(f"a file of embeddings is not used, and made again: {error}", stacklevel=4)
        return None
    return tuple(dict(enumerate(tile)) for tile in tiles)
