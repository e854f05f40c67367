"""A chip's working graph, and the cliques that embed on it.

Every class's problem is dense, so what has to embed is a complete graph: each variable becomes a chain of
qubits, and every two chains are coupled. Pegasus and Zephyr have regular clique embeddings that
`minorminer.busclique` finds in a tenth of a second, round defects too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from annealfit._support.errors import require
from annealfit.hardware.embeddings import EXTRA, Embedding, EmbeddingStore, longest_chain, qubits_of

if TYPE_CHECKING:
    import networkx

# Tiles may have chains this much longer than the first one's: the classes of one call should be equally well served.
_LONGER_CHAINS = 1
_WINDOW_GROWTH = 1.4
# For fewer variables than these minorminer 0.2.22 runs out of memory (Zephyr, 5 to 8) or ends the whole process (if it
# finds none). A larger clique contains theirs, and its chains are hardly longer.
_SMALLEST_SEARCH = {"zephyr": 9, "chimera": 5}


@dataclass(frozen=True, eq=False)
class Chip:
    """The qubits and couplers of a device that work, as a graph of dwave-graphs.

    Embeddings are found once: they are kept in memory, and on disk (`embedding_store`).

    >>> from annealfit.hardware.topologies import ideal_chip
    >>> chip = ideal_chip("P16")
    >>> chip.largest_clique, longest_chain(chip.clique(57)), len(chip.tiles(38, 10))
    (180, 7, 10)
    """

    name: str
    graph: networkx.Graph
    # Answers by question, variables and tiles; and by variables the most tiles that were asked for.
    _found: dict[tuple[int, int], tuple[Embedding, ...]] = field(default_factory=dict, init=False, repr=False)
    _most_asked: dict[int, int] = field(default_factory=dict, init=False, repr=False)

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
        """An embedding of the complete graph, or None where there is none."""
        return next(iter(self._answer(n_variables, 1)), None)

    def tiles(self, n_variables: int, at_most: int) -> tuple[Embedding, ...]:
        """Up to `at_most` disjoint embeddings of the complete graph, to solve as many problems in one call."""
        asked = self._most_asked.get(n_variables, 0)
        found = self._answer(n_variables, asked) if asked else ()
        if len(found) == asked < at_most:  # fewer than asked means that the chip is full
            self._most_asked[n_variables] = at_most
            found = self._answer(n_variables, at_most)
        return found[:at_most]

    @cached_property
    def _store(self) -> EmbeddingStore:
        return EmbeddingStore(self.graph)

    def _answer(self, n_variables: int, at_most: int) -> tuple[Embedding, ...]:
        """What is in memory, or on disk; else what a search finds, which is in both from then on."""
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
    # Its own cache on disk is not used: it holds pickles.
    found: dict[int, Any] = busclique.find_clique_embedding(size, graph, seed=0, use_cache=False)
    chains = [tuple(chain) for chain in found.values()]
    if size > n_variables:
        chains = sorted(chains, key=len)[:n_variables]
    return dict(enumerate(chains)) or None


def _nearest_first(first: Embedding, graph: networkx.Graph, at_most: int) -> tuple[Embedding, ...]:
    """Take the best embedding that is left, one after another: the shortest chains, but gaps between the tiles."""
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
    """Fill the chip from the left, each tile in the narrowest window that holds it: slower, but more of them fit."""
    allowed = longest_chain(best) + _LONGER_CHAINS
    left = _from_left_to_right(graph)
    found: list[Embedding] = []
    smallest = window = qubits_of([best])
    while len(found) < at_most and len(left) >= smallest:
        embedding = _find_clique(len(best), _induced(graph, left[:window]))
        if embedding is not None and longest_chain(embedding) <= allowed:
            found.append(embedding)
            taken = {qubit for chain in embedding.values() for qubit in chain}
            left = [qubit for qubit in left if qubit not in taken]
            # The next one needs about as much; a failure costs as long as a success, so not from the smallest again.
            window = max(round(window / _WINDOW_GROWTH), smallest)
        elif window >= len(left):
            break
        else:
            window = min(round(window * _WINDOW_GROWTH), len(left))
    return tuple(found)


def _induced(graph: networkx.Graph, qubits: Sequence[int]) -> networkx.Graph:
    """The graph on these qubits alone, as `graph.subgraph(qubits).copy()` without its data, in a fifth of the time."""
    kept = set(qubits)
    neighbours = dict(graph.adjacency())
    window = type(graph)(**graph.graph)
    window.add_nodes_from(qubits)
    window.add_edges_from((qubit, other) for qubit in qubits for other in neighbours[qubit] if other in kept)
    return window


def _from_left_to_right(graph: networkx.Graph) -> list[int]:
    drawing = require("dwave.graphs", extra=EXTRA, purpose="placing problems on a chip")
    positions = getattr(drawing, f"{graph.graph['family']}_layout")(graph)
    return sorted(graph.nodes, key=lambda qubit: tuple(positions[qubit]))
