import dimod
import numpy as np
import pytest
from dwave.samplers import SimulatedAnnealingSampler

from annealfit._support.errors import InvalidInputError
from annealfit.samplers import DenseAnnealingSampler
from annealfit.samplers.native import dense


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_biases_of_any_size(scale):
    bqm = dimod.BinaryQuadraticModel({"a": scale, "b": -scale}, {"ab": 0.5 * scale}, "SPIN")
    assert DenseAnnealingSampler().sample(bqm, num_reads=5, seed=1).first.energy == pytest.approx(-2.5 * scale)


@pytest.mark.parametrize("bias", [np.nan, np.inf])
def test_biases_that_are_not_finite_are_refused(bias):
    with pytest.raises(InvalidInputError, match="NaN or infinite"):
        DenseAnnealingSampler().sample(dimod.BinaryQuadraticModel({"a": bias}, {}, "SPIN"))


def test_a_model_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr(dense, "free_memory", lambda: 1000)
    with pytest.raises(InvalidInputError, match=r"20 variables needs .* GiB"):
        DenseAnnealingSampler().sample(dimod.BinaryQuadraticModel(np.ones((20, 20)), "SPIN"))


def sparse_ring(size):
    """Spins in a ring, as a model that no dense matrix is made of."""
    rows = np.arange(size)
    return dimod.BinaryQuadraticModel.from_numpy_vectors(
        np.zeros(size), (rows, (rows + 1) % size, np.ones(size)), 0.0, "SPIN"
    )


def test_large_sparse_models_are_refused_before_a_matrix_is_made(monkeypatch):
    monkeypatch.setattr(dense, "_dense_ising", None)  # nothing gets so far
    message = r"20000 variables and 20000 couplings, 0\.01% of all pairs.*4\.5 GiB.*2000 variables at least 2%.*dwave"
    with pytest.raises(InvalidInputError, match=message):
        DenseAnnealingSampler().sample(sparse_ring(20_000))


def test_small_sparse_models_and_large_dense_ones_are_taken():
    assert len(DenseAnnealingSampler().sample(sparse_ring(300), num_sweeps=1)) == 1
    generator = np.random.default_rng(0)
    pairs = np.array([generator.choice(2100, size=2, replace=False) for _ in range(60_000)])
    biases = generator.normal(size=len(pairs))
    bqm = dimod.BinaryQuadraticModel.from_numpy_vectors(np.zeros(2100), (*pairs.T, biases), 0.0, "SPIN")
    assert DenseAnnealingSampler().sample(bqm, num_sweeps=1, seed=1).first.energy < 0


def test_settings_of_dwaves_sampler_have_its_defaults_and_no_other_value():
    bqm = dimod.BinaryQuadraticModel({"a": 1.0}, {}, "SPIN")
    defaults = {"randomize_order": False, "proposal_acceptance_criteria": "Metropolis"}
    assert set(SimulatedAnnealingSampler().parameters) <= set(DenseAnnealingSampler().parameters)
    assert DenseAnnealingSampler().sample(bqm, seed=1, **defaults).first.energy == -1.0
    with pytest.raises(InvalidInputError, match="randomize_order is True; .* in order"):
        DenseAnnealingSampler().sample(bqm, randomize_order=True)
    with pytest.raises(InvalidInputError, match="proposal_acceptance_criteria is 'Gibbs'; .* 'Metropolis' alone"):
        DenseAnnealingSampler().sample(bqm, proposal_acceptance_criteria="Gibbs")


def test_timing_and_schedule_are_in_the_info():
    info = DenseAnnealingSampler().sample(dimod.BinaryQuadraticModel(np.ones((5, 5)), "SPIN"), num_sweeps=7).info
    assert set(info["timing"]) == {"preprocessing_ns", "sampling_ns", "postprocessing_ns"}
    assert info["num_sweeps"] == 7
    assert 0 < info["beta_range"][0] <= info["beta_range"][1]


def test_initial_states_and_a_time_limit():
    bqm = dimod.BinaryQuadraticModel(np.ones((6, 6)), "SPIN")
    start = np.ones((1, 6), dtype=int)
    unmoved = DenseAnnealingSampler().sample(bqm, initial_states=(start, range(6)), num_sweeps=0)
    assert unmoved.record.sample.tolist() == start.tolist()
    limited = DenseAnnealingSampler().sample(bqm, num_sweeps=10**9, time_limit=0.2)
    assert 0 < limited.info["num_sweeps"] < 10**9


def test_an_unknown_parameter_is_refused():
    with pytest.raises(TypeError, match="num_sweep"):
        DenseAnnealingSampler().sample(dimod.BinaryQuadraticModel({}, {}, "SPIN"), num_sweep=3)
