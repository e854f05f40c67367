"""Blocks: the energies of the blocks add up to the whole problem's, and the child never sees more than it can take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import random_problem

from annealfit.errors import BudgetExhaustedError, InvalidInputError
from annealfit.problem import QuadraticProblem
from annealfit.samplers import BlockSampler, ExactSolver, RoundedSampler, Sampler, Samples, SimulatedAnnealer


class Watching(Sampler):
    """Keeps what its child was asked and answered."""

    def __init__(self, child):
        self.child, self.asked, self.answered = child, [], []

    def solve(self, problems, seeds):
        self.asked.append(list(problems))
        self.answered.append(self.child.solve(problems, seeds))
        return self.answered[-1]


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_the_energies_of_the_blocks_add_up(seed, n_parameters, bits, sweeps):
    problem = random_problem(seed, n_parameters, bits, 0.5)
    child = Watching(ExactSolver())
    answer = BlockSampler(child, max_variables=6, sweeps=1).sample(problem)
    total = sum(block.best_energy for call in child.answered for block in call)
    assert answer.best_energy == pytest.approx(total, abs=1e-9)
    assert max(asked.n_variables for call in child.asked for asked in call) <= 6
    again = BlockSampler(ExactSolver(), max_variables=6, sweeps=sweeps + 1).sample(problem)
    assert again.best_energy <= answer.best_energy + 1e-9  # exact blocks: another sweep never loses


def test_one_block_is_the_child():
    problem = random_problem(3, 5, 2, 0.5)
    assert BlockSampler(ExactSolver(), 10).sample(problem).best_energy == ExactSolver().sample(problem).best_energy


def test_all_problems_take_their_turns_together():
    first = random_problem(0, 8, 2, 0.5)
    others = [QuadraticProblem(first.metric, first.gradient * factor, first.encoding) for factor in (2.0, -1.0)]
    child = Watching(RoundedSampler())
    answers = BlockSampler(child, max_variables=4).solve([first, *others], [1, 2, 3])
    assert [len(call) for call in child.asked] == [3, 3, 3, 3]
    assert len({id(problem.curvature) for problem in child.asked[0]}) == 1
    alone = BlockSampler(RoundedSampler(), max_variables=4).sample(others[1], seed=3)
    np.testing.assert_array_equal(answers[2].bits, alone.bits)


def test_a_large_problem_comes_close_to_its_bound():
    problem = random_problem(0, 300, 3, 0.5)
    answer = BlockSampler(SimulatedAnnealer(num_sweeps=200), max_variables=60, sweeps=4).sample(problem)
    bound = problem.lower_bound()
    assert bound <= answer.best_energy
    assert answer.best_energy < 0.7 * bound


def test_a_block_that_fails_fails_its_problem_only():
    class Fails(Sampler):
        def solve(self, problems, seeds):
            return [
                Samples.failed(problem, "no answer") if problem.gradient[0] > 0 else ExactSolver().sample(problem)
                for problem in problems
            ]

        def summarise(self, answers):
            return {"asked": len(answers)}

    problem = random_problem(0, 4, 1, 0.01)
    up = QuadraticProblem(problem.metric, np.full(4, 10.0), problem.encoding)
    down = QuadraticProblem(problem.metric, np.full(4, -10.0), problem.encoding)
    sampler = BlockSampler(Fails(), 2)
    answers = sampler.solve([up, down], [0, 0])
    assert [answer.failure for answer in answers] == ["no answer", None]
    assert sampler.summarise(answers) == {"asked": 3}  # the failed problem's second block was not asked for


class Random(Sampler):
    def solve(self, problems, seeds):
        return [
            Samples.of(p, np.random.default_rng(seed).integers(0, 2, (1, p.n_variables)))
            for p, seed in zip(problems, seeds, strict=True)
        ]


def test_another_sweep_never_loses_whatever_the_child():
    for seed in range(30):
        problem = random_problem(seed, 8, 2, 0.5)
        energies = [BlockSampler(Random(), 4, sweeps=n).sample(problem, seed=seed).best_energy for n in (1, 2, 4)]
        assert energies[0] >= energies[1] >= energies[2]


def test_a_failure_after_the_first_sweep_leaves_the_answer():
    class Tires(Watching):
        def solve(self, problems, seeds):
            if len(self.asked) == 5:
                raise BudgetExhaustedError("spent")
            return super().solve(problems, seeds)

    problem = random_problem(0, 8, 2, 0.5)
    answer = BlockSampler(Tires(ExactSolver()), 4, sweeps=3).sample(problem)
    assert answer.failure is None
    assert answer.best_energy <= BlockSampler(ExactSolver(), 4, sweeps=1).sample(problem).best_energy
    early = BlockSampler(Tires(ExactSolver()), 2, sweeps=3).sample(problem)
    assert early.failure == "spent"
    assert len(early.info["blocks"]) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockSampler(ExactSolver(), 0), "max_variables is 0"),
        (lambda: BlockSampler(ExactSolver(), 4, sweeps=0), "sweeps is 0"),
        (lambda: BlockSampler("tabu", 4), "is not an annealfit sampler"),
        (lambda: BlockSampler(ExactSolver(), 2).sample(random_problem(0, 3, 3, 0.5)), "one parameter has 3 bits"),
    ],
)
def test_settings_that_make_no_blocks(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
