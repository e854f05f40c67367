"""Blocks: the energies of the blocks add up to the whole problem's, and the child never sees more than it can take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import random_problem
from scipy.optimize import minimize

from annealfit._support.errors import BudgetExhaustedError, InvalidInputError
from annealfit.problems.problem import QuadraticProblem
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
    others = [
        QuadraticProblem(first.shared_curvature, first.gradient * factor, first.encoding) for factor in (2.0, -1.0)
    ]
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


class Fails(Sampler):
    """Answers as an exact solver, but not in these calls; keeps how many problems each call had."""

    def __init__(self, *turns):
        self.turns, self.asked = turns, []

    def solve(self, problems, seeds):
        self.asked.append(len(problems))
        if len(self.asked) - 1 in self.turns:
            return [Samples.failed(problem, f"no answer in call {len(self.asked)}") for problem in problems]
        return ExactSolver().solve(problems, seeds)

    def summarise(self, answers):
        return {"asked": len(answers)}


def rounded(problem, block, update):
    """What a failed block has to choose: the box minimum in the field of the others, by a general solver, rounded."""
    field = problem.gradient[block] + problem.curvature[block] @ np.where(block, 0.0, update)
    inner = problem.curvature[np.ix_(block, block)]
    radius = problem.encoding.range
    found = minimize(
        lambda u: field @ u + 0.5 * u @ inner @ u,
        np.zeros(int(block.sum())),
        jac=lambda u: field + inner @ u,
        bounds=[(-radius, radius)] * int(block.sum()),
        options={"ftol": 1e-15, "gtol": 1e-12},
    )
    return problem.encoding.decode(problem.encoding.encode(found.x))


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize("failing", [0, 1, 3])
def test_a_failed_block_costs_that_block(bits, failing):
    """The other blocks are solved in the field of what it took, as if that had been the answer."""
    for seed in range(5):
        problem = random_problem(seed, 8, bits, 0.5)
        sampler = BlockSampler(Fails(failing), 2 * bits)
        answer = sampler.sample(problem)
        assert answer.failure is None
        update = np.zeros(8)
        for turn in range(4):
            block = np.arange(8) // 2 == turn
            if turn == failing:
                update[block] = rounded(problem, block, update)
            else:
                field = problem.gradient[block] + problem.curvature[block] @ update
                part = QuadraticProblem(problem.curvature[np.ix_(block, block)], field, problem.encoding)
                update[block] = part.decode(ExactSolver().sample(part).best_bits)
        np.testing.assert_allclose(problem.decode(answer.best_bits), update)
        assert answer.best_energy == pytest.approx(problem.energy(answer.best_bits))
        assert sampler.summarise([answer]) == {"asked": 4, "failed_blocks": 1}


def test_a_failed_block_of_a_later_sweep_keeps_what_it_had():
    problem = random_problem(1, 8, 2, 0.5)
    once = BlockSampler(ExactSolver(), 4).sample(problem)
    again = BlockSampler(Fails(4, 5, 6, 7), 4, sweeps=2).sample(problem)
    np.testing.assert_array_equal(again.bits, once.bits)


def test_only_where_every_block_failed_the_problem_did():
    problem = random_problem(0, 8, 2, 0.5)
    sampler = BlockSampler(Fails(0, 1, 2, 3), 4)
    answer = sampler.sample(problem)
    assert answer.failure == "no answer in call 4"
    assert sampler.summarise([answer])["failed_blocks"] == 4
    assert BlockSampler(Fails(0, 1, 2), 4).sample(problem).failure is None


def test_a_block_fails_for_its_problem_only():
    class FailsUpward(Sampler):
        def solve(self, problems, seeds):
            return [
                Samples.failed(problem, "no answer") if problem.gradient[0] > 0 else ExactSolver().sample(problem)
                for problem in problems
            ]

    problem = random_problem(0, 4, 1, 0.01)
    up = QuadraticProblem(problem.shared_curvature, np.full(4, 10.0), problem.encoding)
    down = QuadraticProblem(problem.shared_curvature, np.full(4, -10.0), problem.encoding)
    answers = BlockSampler(FailsUpward(), 2).solve([up, down], [0, 0])
    assert [answer.failure for answer in answers] == ["no answer", None]


def test_problems_with_metrics_of_their_own_take_their_turns_together():
    several = [random_problem(seed, 8, 2, 0.5) for seed in range(3)] + [random_problem(9, 5, 2, 0.5)]
    child = Fails()
    answers = BlockSampler(child, max_variables=4).solve(several, [1, 2, 3, 4])
    assert child.asked == [4, 4, 4, 3]  # the last problem has three blocks
    for problem, answer in zip(several, answers, strict=True):
        np.testing.assert_array_equal(answer.bits, BlockSampler(ExactSolver(), 4).sample(problem).bits)
    assert BlockSampler(child, 4).solve([], []) == []


def lying(change):
    class Liar(Sampler):
        def solve(self, problems, seeds):
            return change(ExactSolver().solve(problems, seeds))

    return Liar()


def test_energies_of_the_child_are_not_taken_on_trust():
    problem = random_problem(0, 8, 2, 0.5)

    class Boasts(Random):
        def solve(self, problems, seeds):
            return [Samples(a.bits, np.full(1, -1e300)) for a in super().solve(problems, seeds)]

    energies = [BlockSampler(Boasts(), 4, sweeps=n).sample(problem).best_energy for n in (1, 2, 4)]
    assert energies[0] >= energies[1] >= energies[2]


def test_a_connection_that_is_lost_fails_its_blocks():
    calls = []

    def lose(answers):
        calls.append(1)
        if len(calls) == 2:
            raise ConnectionError("lost")
        return answers

    sampler = BlockSampler(lying(lose), 4)
    answer = sampler.sample(random_problem(0, 8, 2, 0.5))
    assert answer.failure is None
    assert [block.failure for block in answer.info["blocks"]] == [None, "ConnectionError: lost", None, None]


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
    tired = Tires(ExactSolver())
    early = BlockSampler(tired, 2, sweeps=3).sample(problem)
    assert early.failure is None  # five blocks were answered, and are used
    assert [block.failure for block in early.info["blocks"]] == [None] * 5 + ["spent"] * 19
    assert len(tired.asked) == 5  # it is not asked again
    at_once = Tires(ExactSolver())
    at_once.asked = [None] * 5
    with pytest.raises(BudgetExhaustedError):
        BlockSampler(at_once, 2).sample(problem)


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
