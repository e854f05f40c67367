"""SimulatedAnnealer against dwave-samplers at the same schedule: the same distribution of answers.

Two-sample Kolmogorov–Smirnov tests over 1000 reads each, of the final energies and of each decoded
parameter (Bonferroni over parameters). A pair fails below p = 1e-3: six problems, so a right chain
would fail this file once in some eighty choices of seeds, and the seeds are fixed. A chain that is off by a
tenth of the spread of the energies has p below 1e-3 nine times in ten at this number of reads.
"""

import dimod
import numpy as np
import pytest
from dwave.samplers import SimulatedAnnealingSampler
from random_problems import random_problem
from scipy import stats

from annealfit.samplers import DenseAnnealingSampler, DimodSampler, SimulatedAnnealer

READS = 1000
LEVEL = 1e-3

# parameters, bits, sweeps, β range: hot, warm and cold
PROBLEMS = [
    (19, 5, 20, (0.01, 3.0)),
    (8, 10, 60, (0.1, 30.0)),
    (40, 1, 30, (0.01, 3.0)),
    (19, 20, 10, (0.01, 1.0)),
    (2, 3, 5, (1.0, 2.0)),
    (60, 2, 10, (0.1, 300.0)),
]


def assert_same_answers(problem, ours, theirs):
    energies = stats.ks_2samp(np.round(ours.energies, 9), np.round(theirs.energies, 9), method="asymp")
    assert energies.pvalue > LEVEL
    pairs = zip(problem.decode(ours.bits).T, problem.decode(theirs.bits).T, strict=True)
    lowest = min(stats.ks_2samp(*pair, method="asymp").pvalue for pair in pairs)
    assert lowest * problem.n_parameters > LEVEL


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize(("parameters", "bits", "sweeps", "beta_range"), PROBLEMS)
def test_energies_and_updates_are_distributed_like_dwaves(parameters, bits, sweeps, beta_range, precision):
    problem = random_problem(parameters, parameters, bits)
    settings = {"num_reads": READS, "num_sweeps": sweeps, "beta_range": beta_range}
    theirs = DimodSampler(SimulatedAnnealingSampler(), normalize=False, **settings).sample(problem, seed=1)
    ours = SimulatedAnnealer(precision=precision, **settings).sample(problem, seed=2)
    assert_same_answers(problem, ours, theirs)


@pytest.mark.parametrize(
    "form",
    [
        {"beta_schedule_type": "linear", "beta_range": (0.1, 4.0), "num_sweeps": 12},
        {"beta_schedule_type": "geometric", "beta_range": (0.1, 4.0), "num_sweeps": 12, "num_sweeps_per_beta": 4},
        {"beta_schedule_type": "custom", "beta_schedule": [0.2, 3.0, 0.5], "num_sweeps": 6, "num_sweeps_per_beta": 2},
        {"beta_schedule_type": "geometric", "beta_range": (0.1, 0.7), "num_sweeps": 1},
    ],
)
@pytest.mark.parametrize("normalize", [True, False])
def test_every_form_of_schedule_means_what_it_means_there(form, normalize):
    problem = random_problem(3, 6, 4, range_=2.0)
    theirs = DimodSampler(SimulatedAnnealingSampler(), normalize=normalize, num_reads=READS, **form)
    ours = SimulatedAnnealer(normalize=normalize, num_reads=READS, **form)
    assert_same_answers(problem, ours.sample(problem, seed=2), theirs.sample(problem, seed=1))


def test_the_test_would_notice_another_temperature():
    problem = random_problem(19, 19, 5)
    theirs = DimodSampler(normalize=False, num_reads=READS, num_sweeps=20, beta_range=(0.01, 3.0)).sample(
        problem, seed=1
    )
    warmer = SimulatedAnnealer(num_reads=READS, num_sweeps=20, beta_range=(0.01, 2.0)).sample(problem, seed=2)
    assert stats.ks_2samp(warmer.energies, theirs.energies).pvalue < LEVEL


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_the_dense_sampler_too(vartype):
    generator = np.random.default_rng(0)
    bqm = dimod.BinaryQuadraticModel(generator.normal(size=(30, 30)), vartype)
    settings = {"num_reads": READS, "num_sweeps": 15, "beta_range": (0.02, 1.0)}
    theirs = SimulatedAnnealingSampler().sample(bqm, seed=1, **settings)
    ours = DenseAnnealingSampler().sample(bqm, seed=2, **settings)
    energies = [np.round(sampleset.record.energy, 9) for sampleset in (ours, theirs)]
    assert stats.ks_2samp(*energies).pvalue > LEVEL
