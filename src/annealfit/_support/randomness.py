"""Child seeds from one seed and a path such as (iteration, class, read).

Every random decision takes its seed from where it stands in the work, never from a shared generator's
position. So results do not depend on the number of workers, on the order in which classes are solved,
or on whether training was interrupted and resumed.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# The increment and the finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words
# whose every output bit depends on every input bit.
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def descend(state: NDArray[np.uint64], component: ArrayLike) -> NDArray[np.uint64]:
    """One step down the tree of seeds: the child number `component` of every state, the two broadcasting.

    In the words of SplitMix64, the output number `component` of the generator seeded with `state`.
    """
    word = state + _INCREMENT * (np.asarray(component, dtype=np.uint64) + np.uint64(1))
    word = (word ^ (word >> np.uint64(30))) * _FACTORS[0]
    word = (word ^ (word >> np.uint64(27))) * _FACTORS[1]
    return word ^ (word >> np.uint64(31))


def child_seeds(seed: int, *path: ArrayLike) -> NDArray[np.uint64]:
    """Seeds of the children at `path`, whose non-negative components broadcast against each other.

    >>> child_seeds(42, 7, np.arange(3)).shape
    (3,)
    >>> bool(child_seeds(42, 7, np.arange(3))[2] == child_seed(42, 7, 2))
    True
    """
    state = np.asarray(seed % 2**64, dtype=np.uint64)
    with np.errstate(over="ignore"):  # modulo 2^64 is the point, and NumPy warns of it where arrays are 0-d
        for component in path:
            state = descend(state, component)
    return state


def child_seed(seed: int, *path: int) -> int:
    """The seed of one child, by the arithmetic of `descend` in Python's whole numbers."""
    state = int(seed) % 2**64
    for component in path:
        if component < 0:
            raise OverflowError(f"a component of the path is {component}; it must not be below 0")
        state = (state + int(_INCREMENT) * (int(component) + 1)) % 2**64
        state = (state ^ state >> 30) * int(_FACTORS[0]) % 2**64
        state = (state ^ state >> 27) * int(_FACTORS[1]) % 2**64
        state ^= state >> 31
    return state


def seed_of(random_state: Any) -> int:
    """One seed from what scikit-learn calls a random state: an int is itself, None is fresh every time."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**32:
        return int(random_state)
    from sklearn.utils import check_random_state  # here: it takes longer to import than all the rest

    generator = check_random_state(random_state)  # refuses what is not a random state
    return int(generator.randint(np.iinfo(np.int32).max))
