import dimod
import numpy as np
import pytest
from dwave.samplers import SimulatedAnnealingSampler, SteepestDescentSampler
from random_problems import random_problem

from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit.problems.export import largest_coefficient
from annealfit.samplers import DimodSampler, ExactSolver


class Recorder(dimod.Sampler):
    """Answers with a fixed sample set, and keeps what it was asked."""

    properties: dict = {}  # noqa: RUF012
    parameters: dict = {"num_reads": []}  # noqa: RUF012

    def __init__(self, answer):
        self.answer = answer

    def sample(self, bqm, **parameters):
        self.bqm, self.asked = bqm, parameters
        return self.answer(bqm)


def test_a_cold_anneal_finds_the_exact_minimum():
    problem = random_problem(0, 4, 3)
    found = DimodSampler(num_reads=20, num_sweeps=500, beta_range=(0.1, 1e4), normalize=True).sample(problem, seed=1)
    assert found.best_energy == pytest.approx(ExactSolver().sample(problem).best_energy, rel=1e-9)
    assert found.bits.shape == (20, 4, 3)


def test_same_seed_same_bits_other_seed_other_bits():
    sampler = DimodSampler(num_reads=5, num_sweeps=2, beta_range=(0.01, 0.1))
    problem = random_problem(0, 6, 3)
    first = sampler.sample(problem, seed=2**63)
    np.testing.assert_array_equal(first.bits, sampler.sample(problem, seed=2**63).bits)
    assert not np.array_equal(first.bits, sampler.sample(problem, seed=2**63 + 1).bits)


@pytest.mark.parametrize("normalize", [True, False])
def test_coefficients_are_divided_by_the_largest(normalize):
    problem = random_problem(0, 3, 2)
    recorder = Recorder(lambda bqm: dimod.ExactSolver().sample(bqm))
    DimodSampler(recorder, normalize=normalize, num_reads=3).sample(problem)
    biases = [abs(bias) for bias in (*recorder.bqm.linear.values(), *recorder.bqm.quadratic.values())]
    assert max(biases) == pytest.approx(1.0 if normalize else largest_coefficient(problem))
    assert recorder.asked == {"num_reads": 3}


def test_energies_are_recomputed_not_trusted():
    problem = random_problem(1, 2, 2)
    liar = Recorder(lambda bqm: dimod.SampleSet.from_samples(np.ones((1, 4), int), "BINARY", energy=[-1e9]))
    assert DimodSampler(liar).sample(problem).best_energy == problem.energy(np.ones(4, int))


def test_spins_and_shuffled_variables_are_understood():
    problem = random_problem(1, 2, 2)
    spins = dimod.SampleSet.from_samples((np.array([[1, -1, -1, 1]]), [3, 1, 0, 2]), "SPIN", energy=[0.0])
    answer = DimodSampler(Recorder(lambda bqm: spins)).sample(problem)
    assert answer.bits.reshape(-1).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda bqm: dimod.SampleSet.from_samples([], "BINARY", energy=[]), "no samples"),
        (lambda bqm: dimod.SampleSet.from_samples(np.ones((1, 3), int), "BINARY", energy=[0]), "3 variables"),
        (
            lambda bqm: dimod.SampleSet.from_samples(np.full((1, 4), 7), "INTEGER", energy=[0]),
            "not bits",
        ),
    ],
)
def test_nonsense_from_the_child_is_refused(answer, message):
    with pytest.raises(SamplerError, match=message):
        DimodSampler(Recorder(answer)).sample(random_problem(0, 2, 2))


def test_a_misspelt_parameter_is_refused():
    with pytest.raises(InvalidInputError, match="no parameter num_sweep; it takes .*num_sweeps"):
        DimodSampler(SimulatedAnnealingSampler(), num_sweep=100)


def test_what_is_not_a_sampler_is_refused():
    with pytest.raises(InvalidInputError, match="or a dimod sampler, which has a method"):
        DimodSampler("simulated annealing")


def test_a_child_without_a_seed_is_not_given_one():
    answer = DimodSampler(SteepestDescentSampler(), num_reads=3).sample(random_problem(0, 3, 2))
    assert len(answer.energies) == 3
    assert answer.info["coefficient_scale"] > 0


def test_an_all_zero_problem_has_no_scale():
    problem = random_problem(0, 2, 1)
    flat = type(problem)(np.zeros((2, 2)), np.zeros(2), problem.encoding)
    assert DimodSampler(num_sweeps=1, beta_range=(0.1, 1.0)).sample(flat).best_energy == 0
