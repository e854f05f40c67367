"""QPUSampler on the rehearsal device: tiles, calls, gauges, chain strength, retries, budget, and what it refuses."""

from __future__ import annotations

import math
import pickle
import warnings
from itertools import pairwise
from types import SimpleNamespace

import dimod
import numpy as np
import pytest
from random_problems import random_problem

pytest.importorskip("dwave.system")

import dwave.cloud.exceptions
from dwave.cloud.solver import StructuredSolver
from dwave.embedding import verify_embedding

from annealfit._support.errors import BudgetExhaustedError, InvalidInputError, SamplerError
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import BlockSampler, ExactSolver, MockQPU, QPUSampler


def quiet(**options):
    return MockQPU("Z12", field_noise=0, coupling_noise=0, **options)


def sampler_on(device, **options):
    return QPUSampler(device, **{"num_reads": 20, "backoff_seconds": 0, **options})


def problems(count=3, n_parameters=4, bits=2):
    return [random_problem(seed, n_parameters, bits, 0.5) for seed in range(count)]


def test_the_optimum_of_small_problems_is_found_on_a_quiet_device():
    several = problems(5)
    answers = sampler_on(quiet(num_sweeps=1000), num_reads=200).solve(several, range(5))
    exact = ExactSolver().solve(several, range(5))
    for answer, optimum in zip(answers, exact, strict=True):
        assert answer.best_energy == pytest.approx(optimum.best_energy, abs=1e-12)


def test_all_problems_go_out_in_one_call_and_sizes_do_not_mix():
    device = quiet()
    sampler_on(device).solve(problems(10), range(10))
    assert device.calls == 1
    sampler_on(device).solve([*problems(2, bits=1), *problems(2, bits=2)], range(4))
    assert device.calls == 3


def test_as_few_calls_as_the_chip_allows():
    device = quiet()
    several = problems(3, n_parameters=60)  # 120 variables: one such clique fills most of the chip
    sampler = sampler_on(device, num_reads=2)
    plan = sampler.preflight(several)
    sampler.solve(several, range(3))
    assert device.calls == plan.calls == math.ceil(3 / len(sampler.chip.tiles(120, 3))) > 1
    assert plan.access_seconds == pytest.approx(sampler.access_seconds)


def test_the_embedding_is_valid_and_the_tiles_are_disjoint():
    device = MockQPU("Z12", defects=0.02, seed=4)
    sampler = sampler_on(device)
    several = problems(6, n_parameters=10)
    program = sampler._program(several)
    model = program.model(np.ones(6 * 20, dtype=int))
    assert verify_embedding(program.embedding, list(model.quadratic), list(device.edgelist))
    used = [qubit for chain in program.embedding.values() for qubit in chain]
    assert len(used) == len(set(used)) == program.n_qubits


def test_every_problem_fills_the_range_by_itself():
    small = QuadraticProblem(np.eye(3) + 0.1, np.full(3, 1e-6), Encoding(bits=2, range=1e-5))
    program = sampler_on(quiet())._program([*problems(1, n_parameters=3), small])
    strengths = [program.chain_strengths[6 * t] for t in (0, 1)]
    model = program.model(np.ones(12, dtype=int))
    for t in (0, 1):
        fields = np.abs([model.linear[6 * t + i] for i in range(6)]).max()
        biggest = max(abs(b) for (i, _), b in model.quadratic.items() if i // 6 == t)
        assert max(fields / 4, biggest, strengths[t] / 2) == pytest.approx(1)


@pytest.mark.parametrize(
    ("topology", "name"), [("Z12", "per_group_coupling_range"), ("P16", "per_qubit_coupling_range")]
)
def test_what_a_qubit_takes_is_looked_at_before_a_call(topology, name):
    """With narrow limits a program is scaled down until the device, which checks, takes it; the scale is on record."""
    several = problems(3, n_parameters=8)
    wide = MockQPU(topology, field_noise=0, coupling_noise=0)
    narrow = MockQPU(topology, field_noise=0, coupling_noise=0)
    narrow.properties[name] = [-1.5, 0.2]
    usual, scaled = (sampler_on(device).solve(several, range(3)) for device in (wide, narrow))
    assert all(answer.failure is None for answer in (*usual, *scaled))
    assert all(a.info["coefficient_scale"] < b.info["coefficient_scale"] for a, b in zip(usual, scaled, strict=True))
    without_a_look = sampler_on(wide)
    without_a_look.device = narrow
    with pytest.raises(SamplerError, match="the sum of the couplings of one"):
        without_a_look.solve(several, range(3))


def test_a_gauge_changes_the_program_and_not_the_answer(monkeypatch):
    programmed = []
    device = quiet()
    real = MockQPU._check_ranges
    monkeypatch.setattr(
        MockQPU, "_check_ranges", lambda self, spins: (programmed.append(spins.copy()), real(self, spins))[1]
    )
    problem = problems(1)[0]
    optimum = ExactSolver().sample(problem).best_energy
    for reversals, calls in ((0, 1), (1, 1), (4, 4)):
        programmed.clear()
        answer = sampler_on(device, spin_reversals=reversals, num_reads=40).sample(problem)
        assert answer.best_energy == pytest.approx(optimum)
        assert len(programmed) == calls
        assert answer.bits.shape[0] == 40
    assert any(not first.is_almost_equal(second) for first, second in pairwise(programmed))


def test_reads_beyond_the_duration_of_a_call_are_split():
    device = quiet()
    device.properties["problem_run_duration_range"] = [0.0, 60_000.0]
    sampler = sampler_on(device, num_reads=50, annealing_time=2000)
    answer = sampler.sample(problems(1)[0])
    assert device.calls > 1
    assert len(answer.bits) == 50


def test_a_device_that_takes_not_even_one_read():
    device = quiet()
    device.properties["problem_run_duration_range"] = [0.0, 10_000.0]
    with pytest.raises(SamplerError, match="one read on mock Z12.* takes longer than a call may, 0.01 s"):
        sampler_on(device).sample(problems(1)[0])


def test_polish_never_raises_the_energy_and_the_raw_one_stays_on_record():
    device = MockQPU("Z12", field_noise=0.5, coupling_noise=0.5)
    problem = random_problem(1, 12, 3, 0.5)
    answer = sampler_on(device, polish=True, num_reads=5).sample(problem)
    assert answer.best_energy < answer.info["raw_energy"]
    assert 0 < answer.info["chain_strength"] <= 2
    flipped = np.array(answer.best_bits).reshape(-1)
    for position in range(len(flipped)):  # a local minimum: no single flip is better
        neighbour = flipped.copy()
        neighbour[position] ^= 1
        assert problem.energy(neighbour) >= answer.best_energy - 1e-12
    plain = sampler_on(MockQPU("Z12", field_noise=0.5, coupling_noise=0.5), num_reads=5).sample(problem)
    assert plain.best_energy == plain.info["raw_energy"] == pytest.approx(answer.info["raw_energy"])


class Rows:
    """A device whose answers are a histogram: two rows, one seen nine times."""

    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        return getattr(self.device, name)

    def sample(self, bqm, **parameters):
        answer = self.device.sample(bqm, **parameters)
        states = answer.record.sample[:2].copy()
        states[0] = states[0, 0]  # all qubits alike: no chain is broken
        states[1, ::2] *= -1  # and here many are
        return dimod.SampleSet.from_samples_bqm(
            (states, answer.variables), bqm, num_occurrences=[9, 1], aggregate_samples=False, info=answer.info
        )


def test_chain_breaks_are_weighted_by_occurrences():
    sampler = sampler_on(Rows(quiet()), num_reads=10, spin_reversals=0)
    problem = random_problem(0, 20, 1, 0.5)
    answer = sampler.sample(problem)
    share = sampler.summarise([answer])["chain_breaks"]
    assert 0 < share <= 0.1  # nine of ten reads have none


def test_what_no_retry_can_help_is_raised_at_once(monkeypatch):
    device = quiet()
    error = dwave.cloud.exceptions.SolverAuthenticationError("invalid token")
    monkeypatch.setattr(device, "sample", lambda *a, **k: (_ for _ in ()).throw(error))
    with pytest.raises(SamplerError, match="the device refused the call \\(SolverAuthenticationError"):
        sampler_on(device).sample(problems(1)[0])
    device = quiet()
    with pytest.raises(SamplerError, match="answer_mode is 'verbose'"):
        sampler_on(device, answer_mode="verbose").sample(problems(1)[0])
    assert device.calls == 1


@pytest.mark.parametrize(
    "parameters",
    [
        {"annealing_time": 100},
        {"programming_thermalization": 5000},
        {"readout_thermalization": 1000},
        {"anneal_schedule": [[0, 0], [1000, 1]]},
        {"reduce_intersample_correlation": True},
    ],
)
def test_the_estimate_is_dwaves_and_the_mock_bills_it(parameters):
    sampler = sampler_on(quiet(), num_reads=50, **parameters)
    several = problems(2)
    plan = sampler.preflight(several)
    solver = SimpleNamespace(properties=sampler.device.properties)
    expected = StructuredSolver.estimate_qpu_access_time(solver, plan.qubits, 50, **parameters) * 1e-6
    sampler.solve(several, range(2))
    assert plan.access_seconds == pytest.approx(expected)
    assert sampler.access_seconds == pytest.approx(expected)


def test_what_was_paid_for_before_a_lasting_error_is_used():
    device = quiet()
    sizes = [*problems(1, bits=1), *problems(1, bits=2)]
    sampler = sampler_on(device)
    real, device.sample = device.sample, None

    def once(*arguments, **parameters):
        device.sample = lambda *a, **k: (_ for _ in ()).throw(ValueError("broken"))
        return real(*arguments, **parameters)

    device.sample = once
    answers = sampler.solve(sizes, range(2))
    assert [answer.failure is None for answer in answers] == [True, False]
    with pytest.raises(SamplerError, match="broken"):
        sampler.solve(sizes, range(2))


def test_a_sampler_goes_to_other_processes_unless_it_has_a_budget():
    sampler = sampler_on(quiet())
    sampler.sample(problems(1)[0])
    copied = pickle.loads(pickle.dumps(sampler))
    assert copied.sample(problems(1)[0]).best_energy < 0
    with pytest.raises(SamplerError, match="each of which would spend it anew"):
        pickle.dumps(sampler_on(quiet(), max_access_seconds=1))


def test_fewer_reads_and_broken_chains_are_used_and_noted():
    device = MockQPU("Z12", faults={"fewer_reads": 1.0})
    sampler = sampler_on(device)
    answer = sampler.sample(problems(1)[0])
    assert len(answer.bits) == 10
    assert sampler.summarise([answer])["faults"] == "fewer reads than asked: 10 of 20"
    device = MockQPU("Z12", faults={"broken_chains": 1.0})
    sampler = sampler_on(device)
    answer = sampler.sample(random_problem(0, 20, 2, 0.5))
    summary = sampler.summarise([answer])
    assert summary["chain_breaks"] > 0.25
    assert summary["faults"].startswith("broken chains: ")


def test_the_budget_is_kept():
    device = quiet()
    sampler = sampler_on(device, max_access_seconds=0.05)
    several = problems(3)
    for _ in range(2):
        sampler.solve(several, range(3))
    with pytest.raises(BudgetExhaustedError, match=r"the next call takes about .* s; max_access_seconds is 0.05"):
        sampler.solve(several, range(3))
    assert 0 < sampler.access_seconds <= 0.05
    assert device.calls == 2
    # Calls that failed may have run, so they count.
    lost = sampler_on(quiet(faults={"timeout": 1.0}), max_access_seconds=0.05, retries=100)
    (answer,) = lost.solve(several[:1], [0])  # not raised yet: what was paid for has to reach the history
    assert "max_access_seconds" in answer.failure
    with pytest.raises(BudgetExhaustedError):
        lost.sample(several[0])
    assert 0 < lost.access_seconds <= 0.05


def test_what_was_paid_for_before_the_budget_ended_is_used():
    sizes = [*problems(1, bits=1), *problems(1, bits=2), *problems(1, bits=3)]  # three calls
    sampler = sampler_on(quiet(), max_access_seconds=0.05)
    answers = sampler.solve(sizes, range(3))
    assert [answer.failure is None for answer in answers] == [True, True, False]
    assert "max_access_seconds" in answers[2].failure
    gauges = sampler_on(quiet(), max_access_seconds=0.05, spin_reversals=4)
    assert len(gauges.sample(sizes[0]).bits) == 15  # of 20 reads in four calls, those of three


def test_problems_that_do_not_fit_are_refused_with_reason_and_remedy():
    sampler = sampler_on(MockQPU("P16"))
    with pytest.raises(SamplerError) as caught:
        sampler.sample(random_problem(0, 19, 20, 0.5))
    message = str(caught.value)
    assert "380 variables (19 parameters of 20 bits) do not embed on mock P16: its largest clique is 180" in message
    assert "use at most bits=9, or solve in blocks: BlockSampler(sampler, max_variables=40), or --blocks 40" in message
    assert sampler.device.calls == 0
    with pytest.raises(SamplerError, match="largest clique is 180; solve in blocks"):
        sampler.sample(random_problem(0, 200, 1, 0.5))


def test_coefficients_beyond_the_device_are_warned_of_once():
    problem = random_problem(0, 6, 10, 0.5)
    sampler = sampler_on(quiet(), num_reads=2)
    with pytest.warns(UserWarning, match=r"% of the couplings are below .* use fewer than 10 bits \(1 or 2 do"):
        sampler.sample(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.sample(problem)
        sampler_on(quiet(), num_reads=2).sample(random_problem(0, 6, 2, 0.5))


def test_stronger_chains_break_less():
    several = [random_problem(seed, 20, 2, 0.5) for seed in range(3)]
    breaks = []
    for prefactor in (0.3, 1.0, 3.0):
        sampler = sampler_on(MockQPU("Z12"), chain_prefactor=prefactor)
        breaks.append(sampler.summarise(sampler.solve(several, range(3)))["chain_breaks"])
    assert breaks[0] > breaks[1] > breaks[2]


def test_only_a_connection_of_its_own_is_closed(monkeypatch):
    closed = []
    monkeypatch.setattr("dwave.system.DWaveSampler", lambda: device)
    device = quiet()
    device.close = lambda: closed.append(True)
    with QPUSampler(device):
        pass
    assert closed == []
    with BlockSampler(QPUSampler(), 10) as sampler:
        assert sampler.child.device is device
    assert closed == [True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_reads": 0}, "num_reads is 0"),
        ({"chain_prefactor": 0}, "chain_prefactor is 0"),
        ({"spin_reversals": 21}, "spin_reversals is 21"),
        ({"retries": -1}, "retries is -1"),
        ({"max_access_seconds": 0}, "max_access_seconds is 0"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"num_sweeps": 5}, "neither QPUSampler nor the solver has a setting num_sweeps; QPUSampler has num_reads"),
        ({"auto_scale": True}, "auto_scale is not a choice here"),
        ({"annealing_time": 3000}, "annealing_time is 3000; .* at most 2000"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(InvalidInputError, match=message):
        sampler_on(quiet(), **options)


def test_only_devices_with_a_graph_are_devices():
    with pytest.raises(InvalidInputError, match="there is DimodSampler"):
        QPUSampler(dimod.ExactSolver())


def test_the_sampler_says_what_it_is():
    text = repr(sampler_on(MockQPU("Z12"), annealing_time=50))
    assert text.startswith("QPUSampler('mock Z12', num_reads=20, chain_prefactor=2.0")
    assert "annealing_time=50" in text
    assert "0x" not in text
    assert "mock Z12, 10.0% defects" in repr(sampler_on(MockQPU("Z12", defects=0.1)))
