"""Warnings about data that a training does not do what its user expects with."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from annealfit import AnnealedClassifier, AnnealedConvNet
from annealfit.cli import app

X, Y = load_iris(return_X_y=True)
SCALED = StandardScaler().fit_transform(X)
GENERATOR = np.random.default_rng(0)


def fit(features, **settings):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier = AnnealedClassifier(random_state=0, **settings).fit(features, Y)
    return classifier, " ".join(str(warning.message) for warning in caught)


@pytest.mark.parametrize("power", range(-12, 13))
def test_features_in_other_units_give_as_good_a_classifier_or_a_warning(power):
    """The penalty depends on units, so that predictions do; without a warning they are as good as the scaled ones."""
    classifier, said = fit(SCALED * 10.0**power)
    if power in (0, 1, 2):
        assert not said
    assert "standardise" in said or classifier.score(SCALED * 10.0**power, Y) >= 0.95
    assert ("outweighs them" in said) == (power < 0)


@pytest.mark.parametrize("seed", range(6))
def test_columns_in_random_units_warn(seed):
    assert "standardise" in fit(X * 10.0 ** np.random.default_rng(seed).integers(-12, 13, 4))[1]


@pytest.mark.parametrize(
    "column", [GENERATOR.permutation(150) * 1e10, 1.7e9 + GENERATOR.uniform(0, 3e7, 150)], ids=["id", "timestamp"]
)
def test_a_column_that_outweighs_the_others_warns(column):
    assert "standardise" in fit(np.column_stack([X, column]))[1]


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_a_feature_whose_unit_the_penalty_hides_is_named(factor):
    scaled = SCALED * np.where(np.arange(4) == 2, factor, 1 / factor)
    said = fit(scaled)[1]
    assert (
        "3 of 4 features near 0, the first is 0" if factor > 1 else "1 of 4 features near 0, the first is 2"
    ) in said


def test_columns_of_very_different_spread_warn():
    """On wine as it is, a column of about 1,000 beside others of about 1 costs four points of accuracy."""
    with pytest.warns(UserWarning, match=r"keeps the weights of \d+ of 13 features near 0"):
        AnnealedClassifier(random_state=0).fit(*load_wine(return_X_y=True))


def test_probabilities_that_are_all_0_or_1_end_no_training():
    """There the curvature is 0, and so is its measure."""
    rows, kinds = load_wine(return_X_y=True)
    rows, _, kinds, _ = train_test_split(rows, kinds, test_size=0.4, random_state=0, stratify=kinds)
    with pytest.warns(UserWarning, match="standardise"):
        AnnealedClassifier(random_state=0).fit(rows * 1e8, kinds)


@pytest.mark.parametrize("factor", [1e-6, 1e-2, 1.0, 255.0])
def test_a_network_that_learned_nothing_warns(factor):
    images, kinds = load_digits(return_X_y=True)
    images = factor * images[:300].reshape(-1, 8, 8) / 16
    net = AnnealedConvNet(n_filters=2, max_iter=60, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net.fit(images, kinds[:300])
    assert any("learned nothing" in str(warning.message) for warning in caught) == (factor < 0.1)
    assert (net.score(images, kinds[:300]) > 0.5) == (factor > 0.1)


def test_rare_and_constant_features_do_not_warn():
    rare = np.zeros((150, 2))
    rare[7, 0], rare[:, 1] = 1e-4, 3.0
    assert not fit(np.column_stack([SCALED, rare]))[1]


def test_the_program_says_what_the_library_warns_of(tmp_path):
    np.savez(tmp_path / "small.npz", X=X * 1e-12, y=Y)
    result = CliRunner().invoke(app, ["train", str(tmp_path / "small.npz"), "--no-plots", "--out", str(tmp_path / "r")])
    assert "note: the standard deviations of features are" in result.output
