import dimod
import numpy as np
import pytest

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
