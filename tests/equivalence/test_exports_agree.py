"""Factored = dense QUBO = dimod's BQM = Ising, for problems of every shape."""

import numpy as np
from hypothesis import given, settings
from random_problems import problems

RELATIVE = 1e-9


def tolerance(problem):
    # Energies of large cancelling terms: relative to the size of the terms, not of their sum.
    matrix, offset = problem.to_qubo()
    return RELATIVE * max(abs(offset), np.abs(matrix).sum())


@settings(max_examples=200)
@given(problems())
def test_all_exports_have_the_problems_energy(problem):
    n = problem.n_variables
    bits = np.random.default_rng(n).integers(0, 2, size=(8, n))
    energies = problem.energy(bits)
    allowed = tolerance(problem)

    matrix, offset = problem.to_qubo()
    qubo = np.einsum("ri,ij,rj->r", bits, matrix, bits) + offset
    np.testing.assert_allclose(qubo, energies, rtol=RELATIVE, atol=allowed)

    np.testing.assert_allclose(problem.to_bqm().energies(bits), energies, rtol=RELATIVE, atol=allowed)

    fields, couplings, constant = problem.to_ising()
    assert np.array_equal(couplings, np.triu(couplings, 1))
    spins = 2 * bits - 1
    ising = spins @ fields + np.einsum("ri,ij,rj->r", spins, couplings, spins) + constant
    np.testing.assert_allclose(ising, energies, rtol=RELATIVE, atol=allowed)


@given(problems(max_variables=30))
def test_the_papers_coefficients(problem):
    """Q = 4PᵀGP, q = 4Pᵀ(g − δG1), and the constant that makes bᵀQb + qᵀb + κ = 2s(u)."""
    delta = problem.encoding.range
    P = np.kron(np.eye(problem.n_parameters), problem.encoding.weights)
    ones = np.ones(problem.n_parameters)
    Q = 4 * P.T @ problem.curvature @ P
    q = 4 * P.T @ (problem.gradient - delta * problem.curvature @ ones)
    kappa = delta**2 * ones @ problem.curvature @ ones - 2 * delta * problem.gradient @ ones
    matrix, offset = problem.to_qubo()
    np.testing.assert_allclose(matrix, Q + np.diag(q), rtol=1e-9, atol=1e-12 * np.abs(Q).max())
    np.testing.assert_allclose(offset, kappa, rtol=1e-9, atol=tolerance(problem))
