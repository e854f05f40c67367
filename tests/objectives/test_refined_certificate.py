"""The Newton-refined certificate is below the optimum, and tight where the certificate of the point is not."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from annealfit import AnnealedClassifier, AnnealedConvNet
from annealfit.data.rows import ChunkedRows
from annealfit.models.baselines import solve_logistic
from annealfit.training.objectives import LinearHead
from annealfit.training.objectives.certificate import refined_lower_bound


def correlated(seed, n_classes, n_rows=300, n_features=20):
    """Features of which a few directions are hundreds of times as long as the others."""
    generator = np.random.default_rng(seed)
    lengths = 10.0 ** generator.uniform(-1, 1.5, n_features)
    mixing = np.linalg.qr(generator.standard_normal((n_features, n_features)))[0]
    X = generator.standard_normal((n_rows, n_features)) * lengths @ mixing
    logits = 0.5 * X @ (mixing.T / lengths) @ generator.standard_normal((n_features, n_classes))
    return X + 3, (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_no_bound_is_above_the_optimum_and_bounds_are_tight_near_it(seed, n_classes):
    X, y = correlated(seed, n_classes)
    head = LinearHead.of_arrays(X, y, n_classes, 1e-3)
    best = head.at(solve_logistic(X, y, 1e-3).weights)
    generator = np.random.default_rng(seed)
    tight = 0
    for noise in (1e-4, 1e-3, 1e-2, 0.1, 1.0):
        point = head.at(best.weights + noise * generator.standard_normal(best.weights.shape))
        for gap in (1e-4, 1e-2, 1.0):
            bound = refined_lower_bound(point, gap * point.loss)
            assert bound <= best.loss * (1 + 1e-9)  # the precision to which the optimum is known
            own = point.loss - point.lower_bound()
            tight += bound > -np.inf and point.loss - bound < 0.5 * own
    assert tight > 0


def test_a_point_far_from_the_optimum_has_no_refined_bound():
    X, y = correlated(0, 3)
    point = LinearHead.of_arrays(X, y, 3, 1e-3).at(np.zeros((21, 3)))
    assert refined_lower_bound(point, 1e-4 * point.loss) == -np.inf
    assert not point.is_refined_within(1e-4 * point.loss)


def test_without_a_penalty_there_is_no_refined_bound():
    X, y = correlated(0, 3)
    point = LinearHead.of_arrays(X, y, 3, 0.0).at(np.zeros((21, 3)))
    assert refined_lower_bound(point, 1.0) == -np.inf


def test_streamed_rows_have_the_same_refined_bound():
    X, y = correlated(1, 3)
    weights = solve_logistic(X, y, 1e-3).weights + 1e-3
    in_memory, streamed = (
        LinearHead(rows, 1e-3).at(weights)
        for rows in (LinearHead.of_arrays(X, y, 3, 1e-3).rows, ChunkedRows(X, y, 3, chunk_rows=64))
    )
    bounds = [refined_lower_bound(point, 1e-3 * point.loss) for point in (in_memory, streamed)]
    assert bounds[0] > -np.inf
    np.testing.assert_allclose(bounds[0], bounds[1], rtol=1e-9)


def test_a_fit_of_correlated_features_ends_by_the_refined_certificate():
    X, y = correlated(3, 4, n_rows=1000, n_features=90)
    fitted = AnnealedClassifier(random_state=0).fit(X, y)
    assert fitted.stop_reason_ == "tolerance"
    head = LinearHead.of_arrays(X, y, 4, fitted.regularization)
    best = head.at(solve_logistic(X, y, fitted.regularization).weights).loss
    loss = fitted.history_[-1]["loss"]
    assert loss - best <= fitted.optimality_gap_ + 1e-9 <= fitted.tol * loss + 1e-9
    point = head.at(np.vstack([fitted.coef_.T, fitted.intercept_]))
    assert point.loss - point.lower_bound() > 3 * fitted.tol * loss


@pytest.mark.parametrize("n_features", [30, 110])
def test_the_gap_holds_for_features_in_single_precision_far_from_zero(tmp_path, n_features):
    """The loss of a gap is computed in double precision, from outputs in double precision."""
    X, y = correlated(3, 3, n_rows=400, n_features=n_features)
    shifted = (X / 10 + 3000).astype(np.float32)
    np.save(tmp_path / "rows.npy", shifted)
    fitted = AnnealedClassifier(regularization=1e-2, random_state=0).fit(np.load(tmp_path / "rows.npy", "r"), y)
    features = shifted.astype(np.float64)
    head = LinearHead.of_arrays(features, y, 3, 1e-2)
    centred = features - features.mean(axis=0)
    best = LinearHead.of_arrays(centred, y, 3, 1e-2).at(solve_logistic(centred, y, 1e-2).weights).loss
    true = head.at(np.vstack([fitted.coef_.T, fitted.intercept_])).loss - best
    assert fitted.optimality_gap_ >= true - 1e-9


def test_the_head_of_a_network_has_no_certificate():
    X, y = load_digits(return_X_y=True)
    net = AnnealedConvNet(max_iter=12, regularization=1e-3, random_state=0).fit(X[:200] / 16, y[:200])
    assert net.stop_reason_ == "max_iter"
    assert net.optimality_gap_ == np.inf
    assert {row["layer"] for row in net.history_} == {"head", "conv1"}
