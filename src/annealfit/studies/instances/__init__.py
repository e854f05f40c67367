"""A seeded library of QUBO instances from real training: named, made again bit for bit, with their best known energy.

`catalogue` has the names and the lowest energies known, `generating` makes the problems and writes them to files,
`answers` reads and scores what other solvers found.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.studies.instances.answers import Answers, Score, read_answers, score_answers
    from annealfit.studies.instances.catalogue import (
        INSTANCES,
        BestKnown,
        Instance,
        best_known,
        find_instance,
        select_instances,
    )
    from annealfit.studies.instances.generating import (
        WrittenInstance,
        make_problem,
        require_data,
        write_instance,
    )

_PLACES = {
    "catalogue": ("INSTANCES", "BestKnown", "Instance", "best_known", "find_instance", "select_instances"),
    "generating": ("WrittenInstance", "make_problem", "require_data", "write_instance"),
    "answers": ("Answers", "Score", "read_answers", "score_answers"),
}
__all__ = [
    "INSTANCES",
    "Answers",
    "BestKnown",
    "Instance",
    "Score",
    "WrittenInstance",
    "best_known",
    "find_instance",
    "make_problem",
    "read_answers",
    "require_data",
    "score_answers",
    "select_instances",
    "write_instance",
]

__getattr__, __dir__ = lazy_exports(__name__, {name: place for place, names in _PLACES.items() for name in names})
