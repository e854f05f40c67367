"""AnnealedRBM against the enumerated distribution of small machines."""

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealfit import AnnealedRBM
from annealfit.models.family.boltzmann import Machine
from annealfit.problems.levels import Levels
from annealfit.samplers import DimodSampler, SimulatedAnnealer


@parametrize_with_checks([AnnealedRBM(16, max_iter=5)])
def test_every_check(estimator, check):
    check(estimator)


def machine_of(visible, hidden, seed=0):
    generator = np.random.default_rng(seed)
    return Machine(
        generator.normal(size=(visible, hidden)), generator.normal(size=visible), generator.normal(size=hidden)
    )


def energies(machine, visible, hidden):
    return -visible @ machine.visible - hidden @ machine.hidden - np.vecdot(visible @ machine.weights, hidden)


def every(size, bits):
    return np.array(list(itertools.product(np.arange(2**bits) / (2**bits - 1), repeat=size)))


def distribution(machine, bits):
    """All visible states and their probabilities, from energies of all states."""
    visible, hidden = every(len(machine.visible), bits), every(len(machine.hidden), bits)
    weights = np.exp(-energies(machine, visible[:, None], hidden[None])).sum(axis=1)
    return visible, weights / weights.sum()


@pytest.mark.parametrize("bits", [1, 2])
def test_problem_has_the_energies_of_the_machine(bits):
    digits, y = load_digits(n_class=3, return_X_y=True)
    rbm = AnnealedRBM(5, bits, max_iter=1, temperature=3.0, random_state=0).fit(digits[:40], y[:40])
    (problem,) = rbm.problems()
    machine = rbm._machine()
    states = np.random.default_rng(1).integers(0, 2, size=(20, 64 + 3 + 5, bits))
    units = states @ (1 << np.arange(bits)) / (2**bits - 1)
    expected, found = 3 * energies(machine, units[:, :67], units[:, 67:]), problem.energy(states)
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-10)


@pytest.mark.parametrize("bits", [1, 2])
def test_gradient_is_that_of_the_likelihood(bits):
    machine, levels = machine_of(3, 2), Levels(0.0, 1.0, bits)
    given = np.random.default_rng(1).random((7, 3)).round()
    visible, shares = distribution(machine, bits)
    states = np.repeat(visible, np.rint(shares * 1_000_000).astype(int), axis=0)
    gradient = machine.gradient(given, states, levels, (np.zeros(3), np.zeros(2)))

    def likelihood():
        visible, shares = distribution(machine, bits)
        places = [np.flatnonzero((visible == row).all(axis=1))[0] for row in given]
        return np.log(shares[places]).mean()

    for name in ("weights", "visible", "hidden"):
        values, slopes = getattr(machine, name), getattr(gradient, name)
        for place in np.ndindex(values.shape):
            values[place] += 1e-4
            above = likelihood()
            values[place] -= 2e-4
            slope = (above - likelihood()) / 2e-4
            values[place] += 1e-4
            assert slopes[place] == pytest.approx(slope, abs=1e-4)  # shares are rounded to 64 parts in a million
    # Centring changes the coordinates alone: a small step gains what the plain gradient promises of it.
    centred = machine.gradient(given, states, levels, (np.full(3, 0.4), np.full(2, 0.6)))
    promised = sum(
        (getattr(gradient, name) * getattr(centred, name)).sum() for name in ("weights", "visible", "hidden")
    )
    assert promised > 0


@pytest.mark.parametrize("bits", [1, 2])
def test_chains_draw_from_the_machine(bits):
    machine, levels, generator = machine_of(3, 2), Levels(0.0, 1.0, bits), np.random.default_rng(2)
    states = np.zeros((20_000, 3))
    for _ in range(30):
        states = machine.swept(states, levels, generator)
    visible, shares = distribution(machine, bits)
    found = np.array([(states == row).all(axis=1).mean() for row in visible])
    assert (np.abs(found - shares) < 5 * np.sqrt(shares / 20_000) + 1e-4).all()  # five standard errors


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_a_sampler_draws_from_the_machine_at_its_temperature(temperature):
    sampler = SimulatedAnnealer(num_sweeps=50, num_reads=5000, beta_range=(1 / temperature,) * 2)
    rbm, machine = AnnealedRBM(2, temperature=temperature, sampler=sampler, random_state=0), machine_of(3, 2)
    with rbm._solver(0) as solver:
        states = rbm._sampled(machine, solver)
    visible, shares = distribution(machine, 1)
    found = np.array([(states == row).all(axis=1).mean() for row in visible])
    assert (np.abs(found - shares) < 5 * np.sqrt(shares / 5000)).all()  # five standard errors


def test_probabilities_of_labels_are_enumerated():
    generator = np.random.default_rng(0)
    X, y = generator.integers(0, 2, size=(60, 4)).astype(float), generator.integers(0, 3, size=60)
    rbm = AnnealedRBM(3, random_state=0).fit(X, y)
    hidden = every(3, 1)
    for row, found in zip(X[:10], rbm.predict_proba(X[:10]), strict=True):
        fields = row @ rbm.components_.T + rbm.intercept_hidden_ + rbm.label_components_.T  # (C, M)
        weights = np.exp(fields @ hidden.T).sum(axis=1) * np.exp(rbm.label_intercept_)
        np.testing.assert_allclose(found, weights / weights.sum())
    np.testing.assert_array_equal(rbm.predict(X), rbm.predict_proba(X).argmax(axis=1))


@pytest.mark.parametrize(
    "sampler",
    [
        None,
        SimulatedAnnealer(num_sweeps=20, num_reads=30, beta_range=(0.1, 1.0)),
        DimodSampler(num_sweeps=20, num_reads=30, beta_range=(0.1, 1.0)),
    ],
)
def test_digits_are_learned(sampler):
    X, y = load_digits(n_class=4, return_X_y=True)
    rbm = AnnealedRBM(20, learning_rate=0.5, batch_size=32, max_iter=15, sampler=sampler, random_state=0).fit(
        X[:500], y[:500]
    )
    assert rbm.score(X[500:], y[500:]) > 0.8
    assert (rbm.n_solves_, rbm.n_variables_) == (0 if sampler is None else 15 * 15, 64 + 4 + 20)


def test_without_labels_it_is_a_transformer():
    X, y = load_digits().data[:200], load_digits().target[:200]
    rbm = AnnealedRBM(10, 2, max_iter=3, random_state=0).fit(X, y).fit(X)  # the labels of an earlier fit are gone
    found = rbm.transform(X)
    assert found.shape == (200, 10)
    assert 0 <= found.min() <= found.max() <= 1
    with pytest.raises(NotFittedError, match="fit with labels first"):
        rbm.predict(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"n_components": 0}, "n_components is 0"), ({"temperature": 0}, "temperature is 0"), ({"bits": 0}, "bits")],
)
def test_settings_out_of_bounds(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        AnnealedRBM(**settings).fit(*blobs)
