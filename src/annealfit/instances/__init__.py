"""A seeded library of QUBO instances from real training: named, made again bit for bit, with their best known energy.

`catalogue` names them, `generating` makes them, `best_known` knows the lowest energies found, `writing` puts them into
files, `answers` and `checking` read and score what other solvers found.
"""

from annealfit.instances.answers import Answers, read_answers
from annealfit.instances.best_known import BestKnown, best_known, find_best
from annealfit.instances.catalogue import INSTANCES, Instance, find_instance, select_instances
from annealfit.instances.checking import Score, score_answers
from annealfit.instances.generating import make_problem
from annealfit.instances.writing import WrittenInstance, require_data, write_instance

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
