"""Samplers by name: every one solves a problem, and words that make none are refused with the choices."""

from __future__ import annotations

import pytest
from random_problems import random_problem

from annealfit._support.description import NEUTRAL
from annealfit._support.errors import InvalidInputError, MissingDependencyError, SamplerError
from annealfit.samplers import ExactSolver, LatticeSolver, SimulatedAnnealer
from annealfit.samplers.catalogue import SAMPLERS, make_sampler, restore_sampler


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"qpu"}))
def test_every_sampler_solves_a_problem_and_says_what_it_is(name):
    problem = random_problem(1, 5, 2, 0.5)
    sampler = make_sampler(name, seed=3)
    answer = sampler.sample(problem, seed=5)
    optimum = ExactSolver().sample(problem).best_energy
    assert optimum - 1e-9 <= answer.best_energy < 0
    assert "0x" not in repr(sampler)
    again = make_sampler(name, seed=3).sample(problem, seed=5)
    assert again.best_energy == answer.best_energy  # tabu too: the optimum of so small a problem is found in time


def test_settings_reach_the_sampler():
    assert make_sampler("native:num_sweeps=20,num_reads=4") == SimulatedAnnealer(num_sweeps=20, num_reads=4)
    assert make_sampler("openjij:num_reads=3").sample(random_problem(0, 3, 1, 0.5)).bits.shape[0] == 3
    rehearsal = make_sampler("mock-qpu:topology=Z12,polish=true,annealing_time=5.5", seed=7)
    assert rehearsal.chip.name == "mock Z12"
    assert rehearsal.polish is True
    assert rehearsal.parameters == {"annealing_time": 5.5}
    assert rehearsal.device.seed == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "annealer",
            "sampler is 'annealer'; choose one of 'dwave-sa', 'greedy', 'lattice', 'levels', 'mock-qpu'",
        ),
        ("native:sweeps=3", "SimulatedAnnealer has no setting sweeps; it has num_sweeps"),
        ("native:num_sweeps", "write settings as in mock-qpu:topology=Z12,num_reads=50"),
        ("native:=3", "write settings as in"),
        ("native:num_sweeps=many", "num_sweeps is 'many'"),
        ("dwave-sa:sweeps=3", "takes no parameter sweeps"),
        ("mock-qpu:topology=P17", "topology is 'P17'"),
        ("mock-qpu:faults=3", "faults|rate of"),
    ],
)
def test_words_that_make_no_sampler(text, message):
    with pytest.raises(InvalidInputError, match=message):
        make_sampler(text)


def test_without_a_solver_there_is_no_qpu(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DWAVE_API_TOKEN", raising=False)
    with pytest.raises(SamplerError, match="no connection to a D-Wave solver"):
        make_sampler("qpu:max_access_seconds=1")


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openjij", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'annealfit\[openjij\]'"):
        make_sampler("openjij")


def test_openjij_takes_a_range_of_temperatures():
    problem = random_problem(2, 6, 2, 0.5)
    hot = make_sampler("openjij", num_reads=20, beta_min=1e-9, beta_max=1e-8).sample(problem)
    cold = make_sampler("openjij", num_reads=20, beta_min=0.1, beta_max=100.0).sample(problem)
    assert cold.energies.mean() < hot.energies.mean() - 0.1
    with pytest.raises(InvalidInputError, match="takes no parameter sweeps; it takes .*num_sweeps"):
        make_sampler("openjij", sweeps=3)


def test_a_neutral_setting_of_another_version_is_left_out():
    description = LatticeSolver(max_nodes=5).describe()
    description[NEUTRAL]["progress_function"] = None
    assert restore_sampler(description) == LatticeSolver(max_nodes=5)
