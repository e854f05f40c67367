"""Guaranteed descent: no accepted iteration increases the regularised loss."""

import numpy as np
import pytest
from estimators import annealed
from hypothesis import given, settings
from hypothesis import strategies as st

from annealfit import AnnealedClassifier, Method
from annealfit.samplers import Sampler, Samples, SimulatedAnnealer


class RandomBits(Sampler):
    """Random bits: the guarantee is that of the acceptance rule and holds for any sampler."""

    def solve(self, problems, seeds):
        return [
            Samples.of(p, np.random.default_rng(seed).integers(0, 2, size=(1, p.n_variables)))
            for p, seed in zip(problems, seeds, strict=True)
        ]


def random_training(seed):
    """A small training with everything drawn at random: data, its scale, λ, bits, curvature, sampler."""
    generator = np.random.default_rng(seed)
    n_classes, n_samples = int(generator.integers(2, 6)), int(generator.integers(10, 40))
    scale = 10.0 ** generator.uniform(-2, 2)
    X = (generator.normal(size=(n_samples, generator.integers(1, 6))) + generator.normal()) * scale
    y = np.arange(n_samples) % n_classes
    settings = {
        "bits": int(generator.integers(1, 5)),
        "curvature": str(generator.choice(["gram", "bound", "joint"])),
        "range_policy": str(generator.choice(["fixed", "adaptive"])),
        "precision_policy": str(generator.choice(["fixed", "adaptive"])),
        "initialization": str(generator.choice(["zeros", "uniform"])),
        "regularization": float(generator.choice([0.0, 1e-3, 0.1])),
        "update_range": float(10.0 ** generator.uniform(-2, 1)),
        "step": float(generator.choice([0.25, 0.5, 1.0])),
        "sampler": [RandomBits(), SimulatedAnnealer(num_sweeps=10)][generator.integers(2)],
    }
    return X, y, settings


# Relative to the loss: rounding of the two losses that are compared, and of an energy, whose terms cancel.
ROUNDING = 1e-11


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_descent_never_increases_the_loss(seed):
    X, y, options = random_training(seed)
    clf = annealed(max_iter=4, acceptance="descent", random_state=0, tol=0, **options).fit(X, y)
    for row in clf.history_:
        assert row["loss_change"] <= ROUNDING * row["loss"]
        assert (row["accepted"] > 0) or row["loss_change"] == 0
        # The loss decreases by at least the accepted surrogates: half of energies whose sum is at most the row's.
        promised = 0.5 * row["multiple"] * min(row["energy"], 0.0)
        assert row["loss_change"] <= promised + ROUNDING * row["loss"]


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from(["gauss_newton", "diagonal", "bound"]))
def test_a_line_search_never_increases_the_loss_with_any_curvature(seed, curvature):
    X, y, options = random_training(seed)
    options["curvature"] = curvature
    clf = annealed(max_iter=4, acceptance="line_search", random_state=0, tol=0, **options).fit(X, y)
    assert all(row["loss_change"] <= 0 for row in clf.history_)


@pytest.mark.parametrize("max_couplings", [200, 500])
def test_fewer_couplings_keep_the_guarantee(digits_features, max_couplings):
    X, y = digits_features
    method = Method(curvature="bound", acceptance="descent", max_couplings=max_couplings)
    clf = AnnealedClassifier(max_iter=60, random_state=0, method=method)
    assert max(problem.n_couplings for problem in clf.problems(X, y)) <= max_couplings
    clf.fit(X, y)
    losses = np.array([row["loss"] for row in clf.history_])
    assert (np.diff(losses) <= ROUNDING).all()
    assert losses[-1] < 0.95 * losses[0]  # slower: the bound is looser


def test_too_few_couplings_are_refused_with_the_least_number(digits_features):
    with pytest.raises(ValueError, match="19 parameters of 3 bits need at least 57"):
        AnnealedClassifier(method=Method(max_couplings=56)).fit(*digits_features)


def test_the_papers_rule_increases_the_loss_in_about_half_of_the_iterations(digits_features):
    """The paper reports 43–46 % of updates that increase the loss. They are the sampler's noise."""
    clf = AnnealedClassifier.from_paper(20, preset="matched").set_params(max_iter=400, random_state=0)
    clf.fit(*digits_features)
    share = np.mean([row["loss_change"] > 0 for row in clf.history_])
    assert 0.35 < share < 0.6
