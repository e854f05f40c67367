"""Coefficients against a device's ranges and error."""

import dimod
import numpy as np
import pytest
from dwave.embedding.chain_strength import uniform_torque_compensation
from hypothesis import given
from hypothesis import strategies as st
from random_problems import problems, random_problem

from annealfit.hardware.limits import (
    ADVANTAGE,
    COUPLING_ERROR,
    ERROR_LEVELS,
    FIELD_ERROR,
    resolve,
    torque_compensation,
)


@given(problems(max_variables=40))
def test_torque_compensation_is_dwaves(problem):
    _, couplings, _ = problem.to_ising()
    bqm = problem.to_bqm().change_vartype("SPIN", inplace=False)
    for prefactor in (1.414, 0.5):
        expected = uniform_torque_compensation(bqm, prefactor=prefactor)
        assert torque_compensation(couplings, prefactor) == pytest.approx(expected, rel=1e-9)


def test_torque_compensation_of_a_sparse_model_counts_the_couplings_that_are_there():
    couplings = np.zeros((6, 6))
    couplings[0, 1], couplings[2, 5], couplings[1, 4] = 0.3, -2.0, 1.1
    bqm = dimod.BinaryQuadraticModel({}, {(0, 1): 0.3, (2, 5): -2.0, (1, 4): 1.1}, "SPIN")
    bqm.add_linear_from((variable, 0.0) for variable in range(6))
    assert torque_compensation(couplings, 1.414) == pytest.approx(uniform_torque_compensation(bqm), rel=1e-12)
    assert torque_compensation(np.zeros((3, 3))) == uniform_torque_compensation(dimod.BinaryQuadraticModel("SPIN")) == 1


@given(problems(max_variables=40))
def test_scaled_coefficients_fill_the_ranges_and_do_not_exceed_them(problem):
    fields, couplings, _ = problem.to_ising()
    resolution = resolve(fields, couplings)
    filled = [
        np.abs(fields).max() / resolution.scale / ADVANTAGE.field,
        resolution.largest_coupling / ADVANTAGE.coupling,
        resolution.chain_strength / ADVANTAGE.chain,
    ]
    assert max(filled) == pytest.approx(1, rel=1e-12)


def test_share_below_counts_couplings_that_are_not_0_once():
    couplings = np.triu(np.array([[9, 1.0, -0.025], [9, 9, 0.0], [9, 9, 9]]), 1)
    for scale, shares in ((1.0, [0, 0, 0]), (1.5, [0, 0, 0.5]), (2.0, [0, 0.5, 0.5]), (100.0, [0.5, 1, 1])):
        resolution = resolve(np.array([4 * scale, 0, 0]), couplings)  # the field decides the scale
        assert (resolution.scale, resolution.couplings) == (scale, 2)
        assert list(resolution.share_below.values()) == shares  # smaller than the error, not equal
    assert resolution.span_of_couplings == pytest.approx(np.log2(40))
    none = resolve(np.ones(2), np.zeros((2, 2)))
    assert (none.span_of_couplings, none.couplings, set(none.share_below.values())) == (0, 0, {0})


@given(st.integers(0, 1000), st.floats(1e-3, 1e3))
def test_resolution_does_not_depend_on_the_problems_unit(seed, factor):
    fields, couplings, _ = random_problem(seed, 5, 4).to_ising()
    one, other = resolve(fields, couplings), resolve(factor * fields, factor * couplings)
    assert other.scale == pytest.approx(factor * one.scale)
    assert other.span_of_couplings == pytest.approx(one.span_of_couplings)
    assert list(one.share_below) == list(ERROR_LEVELS) == [0.01, 0.015, 0.025]
    assert np.allclose(list(other.share_below.values()), list(one.share_below.values()), atol=0.011)


def test_the_levels_are_the_published_errors():
    assert {*FIELD_ERROR, *COUPLING_ERROR} == set(ERROR_LEVELS)
