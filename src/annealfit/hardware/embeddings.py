"""What an embedding is: a chain of qubits for every variable, and whether chains are one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
