"""A seeded library of QUBO instances from real training: named, made again bit for bit, with their best known energy.

`catalogue` names them, `generating` makes them, `known_energies` has the lowest energies found, `writing` puts them
into files, `answers` and `checking` read and score what other solvers found.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.studies.instances.answers import Answers, read_answers
    from annealfit.studies.instances.catalogue import INSTANCES, Instance, find_instance, select_instances
    from annealfit.studies.instances.checking import Score, score_answers
    from annealfit.studies.instances.generating import make_problem
    from annealfit.studies.instances.known_energies import BestKnown, best_known, find_best
    from annealfit.studies.instances.writing import WrittenInstance, require_data, write_instance

__all__ = [
    "INSTANCES",
    "Answers",
    "BestKnown",
    "Instance",
    "Score",
    "WrittenInstance",
    "best_known",
    "find_best",
    "find_instance",
    "make_problem",
    "read_answers",
    "require_data",
    "score_answers",
    "select_instances",
    "write_instance",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "INSTANCES": "catalogue",
        "Answers": "answers",
        "BestKnown": "known_energies",
        "Instance": "catalogue",
        "Score": "checking",
        "WrittenInstance": "writing",
        "best_known": "known_energies",
        "find_best": "known_energies",
        "find_instance": "catalogue",
        "make_problem": "generating",
        "read_answers": "answers",
        "require_data": "writing",
        "score_answers": "checking",
        "select_instances": "catalogue",
        "write_instance": "writing",
    },
)
