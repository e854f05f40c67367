"""User-defined policies, coordinates, rows and objectives: a few lines each, passed as objects."""

import copy
from functools import partial

import numpy as np
import pytest
from estimators import annealed
from sklearn.base import clone

from annealfit import AnnealedClassifier, Checkpoint, Method
from annealfit._support.description import describe
from annealfit._support.errors import InvalidInputError
from annealfit.data.rows import DenseChunk, Rows
from annealfit.models.baselines import solve_logistic
from annealfit.problems.coordinates import CentredCoordinates, Coordinates, LinearCoordinates
from annealfit.problems.curvature import Curvature
from annealfit.samplers import ExactSolver, LevelAnnealer, RoundedSampler, SimulatedAnnealer
from annealfit.training import Decision, PrecisionPolicy, RangePolicy, Stopping, Trainer, run
from annealfit.training.acceptance import subspace
from annealfit.training.objectives import LinearHead


class Damped:
    """A curvature: the Hessian of each class at the current point, with damping."""

    def __init__(self, damping=0.1):
        self.damping = damping

    def __call__(self, head):
        more = np.diag(head.ridge) + self.damping * np.eye(head.n_parameters)
        return lambda point: [matrix + more for matrix in point.output_grams()]  # arrays are accepted


class Saddle:
    """A curvature that is not convex."""

    def __call__(self, head):
        matrix = 0.5 * head.gram + np.diag(head.ridge)
        matrix[0, 0] = -0.01
        curvature = Curvature(matrix)
        return lambda point: (curvature,)


class Greedy:
    """An acceptance rule: the problem with the lowest energy, if the loss decreases."""

    def __call__(self, proposal):
        chosen = np.zeros(len(proposal.energies), dtype=bool)
        chosen[proposal.energies.argmin()] = True
        return Decision(chosen if proposal.after(chosen, 1.0).loss < proposal.loss else np.zeros_like(chosen))


class Relaxed(RangePolicy):
    """A range policy: twice the size of the continuous minimum of each problem."""

    def choose(self, problems):
        minima = np.array([-problem.shared_curvature.inverse @ problem.gradient for problem in problems])
        return 2 * np.sqrt((minima**2).mean(axis=1)) + 1e-9


class Alternating(PrecisionPolicy):
    def following(self, bits, most, outcome):
        return 1 if bits == most else most


class Centred(Coordinates):
    """Coordinates in which the bias absorbs the means of the features: they depend on the data."""

    def adapted(self, objective):
        matrix = np.eye(objective.n_parameters)
        matrix[-1, :-1] = -objective.gram[-1, :-1]  # the last row of G is the mean
        return LinearCoordinates(matrix)

    def pull_curvature(self, curvature):
        raise NotImplementedError

    pull_gradients = push = pull_curvature


class Files(Rows):
    """Rows that are read from files, one after another, at every pass."""

    chunks_are_cached = False

    def __init__(self, paths, n_features, classes):
        self.paths, self.n_parameters, self.n_classes = paths, n_features + 1, len(classes)
        self._classes = np.asarray(classes)

    @property
    def classes(self):
        return self._classes

    def chunks(self):
        for path in self.paths:
            with np.load(path) as file:
                yield DenseChunk(file["X"], file["y"])


class Chosen(RangePolicy):
    def __init__(self, ranges):
        self.ranges = ranges

    def choose(self, problems):
        return self.ranges


class Revised(Chosen):
    def choose(self, problems):
        return problems.ranges

    def revise(self, ranges, outcome):
        return self.ranges


class First(PrecisionPolicy):
    def __init__(self, bits):
        self.bits = bits

    def first(self, most):
        return self.bits


class Bits(PrecisionPolicy):
    def __init__(self, bits):
        self.bits = bits

    def following(self, bits, most, outcome):
        return self.bits


def fit(X, y, **settings):
    return annealed(max_iter=40, random_state=0, **settings).fit(X, y)


def optimum(X, y, regularization=1e-3):
    head = LinearHead.of_arrays(X, y, len(np.unique(y)), regularization)
    return head.at(solve_logistic(X, y, regularization).weights).loss


def test_an_own_curvature(blobs):
    clf = fit(*blobs, curvature=Damped())
    assert clf.history_[-1]["loss"] < 1.02 * optimum(*blobs)
    assert all(row["lower_bound"] <= row["energy"] for row in clf.history_)


def test_a_curvature_that_is_not_convex_has_no_certificate_and_is_not_refused(blobs, tmp_path):
    options = {"curvature": Saddle(), "bits": 1, "sampler": ExactSolver()}
    clf = fit(*blobs, **options)
    assert all(row["lower_bound"] is None and row["gap"] is None for row in clf.history_)
    assert all(row["loss_change"] <= 0 for row in clf.history_)
    assert clf.history_[-1]["loss"] < 0.6 * clf.history_[0]["loss"]
    fit(*blobs, **options | {"sampler": RoundedSampler()})
    path = tmp_path / "training.safetensors"
    annealed(max_iter=10, random_state=0, checkpoint=path, **options).fit(*blobs)
    resumed = annealed(max_iter=40, random_state=0, checkpoint=Checkpoint(path, resume=True), **options).fit(*blobs)
    np.testing.assert_array_equal(resumed.coef_, clf.coef_)
    assert [row["gap"] for row in resumed.history_] == [None] * clf.n_iter_


def test_an_own_acceptance_rule(blobs):
    clf = fit(*blobs, acceptance=Greedy())
    assert {row["accepted"] for row in clf.history_} <= {0, 1}
    assert all(row["loss_change"] <= 0 for row in clf.history_)
    assert fit(*blobs, acceptance=subspace).history_[-1]["loss"] == fit(*blobs).history_[-1]["loss"]


def test_an_own_range_policy(blobs):
    clf = fit(*blobs, range_policy=Relaxed(), sampler="rounded")
    assert clf.history_[-1]["loss"] < fit(*blobs, range_policy="fixed", sampler="rounded").history_[-1]["loss"]
    assert len({row["range"] for row in clf.history_}) == clf.n_iter_


def test_an_own_precision_policy(blobs):
    assert [row["bits"] for row in fit(*blobs, bits=3, precision_policy=Alternating()).history_[:4]] == [3, 1, 3, 1]


@pytest.mark.parametrize("curvature", ["bound", "joint", "gauss_newton"])
def test_own_coordinates(digits_features, curvature):
    """The optimum is the same, and energies and bounds are those of the same quadratic."""
    X, y = digits_features
    X, y = X[::5], y[::5]
    raw, centred = (
        annealed(max_iter=15, random_state=0, curvature=curvature, coordinates=coordinates).fit(X, y)
        for coordinates in ("raw", Centred())
    )
    assert all(row["loss_change"] <= 0 for row in centred.history_)
    assert all(row["lower_bound"] <= row["energy"] for row in centred.history_)
    assert centred.history_[3]["loss"] != raw.history_[3]["loss"]  # other bits
    for clf in (raw, centred):
        assert optimum(X, y) - 1e-12 <= clf.history_[-1]["loss"] < 1.01 * optimum(X, y)


class Doubled:
    """Coordinates that do not inherit from `Coordinates`, with the four required methods."""

    def adapted(self, objective):
        return self

    def pull_curvature(self, curvature):
        return Curvature(4 * curvature.matrix)

    def pull_gradients(self, gradients):
        return 2 * gradients

    def push(self, updates):
        return 2 * updates


def test_coordinates_need_their_four_methods_only(blobs):
    own, same = (fit(*blobs, coordinates=given) for given in (Doubled(), LinearCoordinates(2 * np.eye(5))))
    np.testing.assert_allclose(own.coef_, same.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    "coordinates",
    [
        LinearCoordinates([[1.0, 2.0, 0.5], [-0.3, 0.7, 1.1], [0.2, -1.5, 0.4]]),
        CentredCoordinates([2.0, -0.5]),
        CentredCoordinates([2.0, -0.5], bias_unit=0.3),
    ],
)
def test_coordinates_are_the_same_quadratic(coordinates):
    generator = np.random.default_rng(0)
    factor = generator.normal(size=(6, 3))
    curvature, gradients, z = Curvature(factor.T @ factor), generator.normal(size=(4, 3)), generator.normal(size=(4, 3))
    pulled = coordinates.pull_curvature(curvature).energies(coordinates.pull_gradients(gradients), z)
    np.testing.assert_allclose(pulled, curvature.energies(gradients, coordinates.push(z)), rtol=1e-9)
    joint = Curvature(np.kron(np.eye(2) + 0.5, curvature.matrix))
    pulled = coordinates.pull_curvature(joint).energies(
        coordinates.pull_gradients(gradients.reshape(2, 6)), z.reshape(2, 6)
    )
    expected = joint.energies(gradients.reshape(2, 6), coordinates.push(z.reshape(2, 6)))
    np.testing.assert_allclose(pulled, expected, rtol=1e-9)


def test_centred_coordinates_have_the_means_and_the_spread_of_the_rows(digits_features):
    X, y = digits_features
    centred = CentredCoordinates().adapted(LinearHead.of_arrays(X, y, 10, 1e-3))
    np.testing.assert_allclose(centred.means, X.mean(axis=0), rtol=1e-12)
    assert centred.bias_unit == pytest.approx(18**0.25 * np.sqrt(X.var(axis=0).mean()), rel=1e-9)
    assert CentredCoordinates(bias_unit=2).adapted(LinearHead.of_arrays(X, y, 10, 1e-3)).bias_unit == 2
    # The curvature of the bias is √d times the mean of those of the weights, and it is coupled to none of them.
    pulled = centred.pull_curvature(Curvature(LinearHead.of_arrays(X, y, 10, 0.0).gram)).matrix
    assert pulled[-1, -1] == pytest.approx(18**0.5 * pulled.diagonal()[:-1].mean(), rel=1e-9)
    np.testing.assert_allclose(pulled[-1, :-1], 0.0, atol=1e-12 * pulled.max())


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200])
def test_the_bias_unit_is_1_if_features_have_no_spread(scale):
    head = LinearHead.of_arrays(np.full((6, 1), scale), np.arange(6) % 2, 2, 1e-3)
    assert CentredCoordinates().adapted(head).bias_unit == 1.0


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 2)), "rank 1; it must be square and invertible"),
        (np.ones((2, 3)), "square"),
        ([[np.nan]], "NaN"),
        (np.eye(4), "for 4 parameters, and an output has 5"),
    ],
)
def test_invalid_coordinates_are_refused(blobs, matrix, message):
    with pytest.raises(InvalidInputError, match=message):
        fit(*blobs, coordinates=LinearCoordinates(matrix))


def test_decisions_may_be_lists(blobs):
    assert fit(*blobs, acceptance=lambda p: Decision([bool(e < 0) for e in p.energies])).n_iter_ > 0


class Inconsistent(Rows):
    n_parameters, n_classes = 5, 3

    def __init__(self, *chunks, **settings):
        self.parts = chunks
        vars(self).update(settings)

    def chunks(self):
        return self.parts


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Inconsistent(), "there are no rows"),
        (Inconsistent(DenseChunk(np.zeros((2, 3)), np.array([0, 1]))), "4 parameters per row .*; expected 5"),
        (Inconsistent(DenseChunk(np.zeros((2, 4)), np.array([0, 3]))), "labels from 0 to 3; .* labels below 3"),
        (Inconsistent(DenseChunk(np.zeros((2, 4)), np.array([0, 0])), n_classes=1), "at least two classes"),
    ],
)
def test_inconsistent_rows_are_refused(rows, message):
    with pytest.raises(InvalidInputError, match=message):
        AnnealedClassifier().fit(rows)


def test_validation_rows_must_match_the_training_rows(blobs):
    X, y = blobs
    rows, two = Inconsistent(DenseChunk(X, y)), Inconsistent(DenseChunk(X, y % 2), n_classes=2)
    assert "validation_accuracy" in AnnealedClassifier(max_iter=2).fit(rows, validation_data=rows).history_[0]
    with pytest.raises(InvalidInputError, match="expected 5, 3 and 3"):
        AnnealedClassifier().fit(rows, validation_data=two)
    with pytest.raises(InvalidInputError, match="must be rows too"):
        AnnealedClassifier().fit(rows, validation_data=(X, y))


def test_own_rows(blobs, tmp_path):
    X, y = blobs
    for part in range(3):
        np.savez(tmp_path / f"{part}.npz", X=X[part::3], y=y[part::3])
    rows = Files(sorted(tmp_path.glob("*.npz")), X.shape[1], classes=["ape", "bee", "cow"])
    clf = AnnealedClassifier(max_iter=40, random_state=0).fit(rows)
    assert clf.classes_.tolist() == ["ape", "bee", "cow"]
    assert clf.n_features_in_ == 4
    in_memory = AnnealedClassifier(max_iter=40, random_state=0).fit(X, y)
    np.testing.assert_allclose(clf.coef_, in_memory.coef_, rtol=1e-9)
    assert clf.optimality_gap_ == pytest.approx(in_memory.optimality_gap_, rel=1e-6)
    path = tmp_path / "training.safetensors"
    AnnealedClassifier(max_iter=10, random_state=0, checkpoint=path).fit(rows)
    resumed = AnnealedClassifier(max_iter=40, random_state=0, checkpoint=Checkpoint(path, resume=True)).fit(rows)
    np.testing.assert_array_equal(resumed.coef_, AnnealedClassifier(max_iter=40, random_state=0).fit(rows).coef_)
    for options in ({"y": y}, {"sample_weight": np.ones(60)}):
        with pytest.raises(InvalidInputError, match="rows bring their labels and weights with them"):
            AnnealedClassifier().fit(rows, **options)


class Valley:
    """An objective that is not a classifier and not convex: Rosenbrock's, two blocks of one parameter."""

    multiplications = 1.0

    def at(self, weights):
        return ValleyPoint(weights)


class ValleyPoint:
    def __init__(self, weights):
        x, y = weights
        self.weights, self.loss = weights, float((1 - x) ** 2 + 10 * (y - x**2) ** 2)
        self.gradients = np.array([[-2 * (1 - x) - 40 * x * (y - x**2)], [20 * (y - x**2)]])

    def hessian(self):
        x, y = self.weights
        return np.array([[2 - 40 * (y - 3 * x**2), -40 * x], [-40 * x, 20.0]])

    def step_from(self, previous):
        return (self.weights - previous)[:, None]

    def curvature_along(self, directions, previous=None):
        flat = [np.diag(direction.ravel()) for direction in directions]  # a row per block and direction
        return np.block([[one @ self.hessian() @ other for other in flat] for one in flat])

    def moved(self, updates, *, remove_class_mean=False):
        return ValleyPoint(self.weights + updates.ravel())

    def is_within(self, gap):
        return self.loss <= gap  # the minimum is known to be 0

    def lower_bound(self):
        return 0.0

    def figures(self):
        return {"loss": self.loss}


@pytest.mark.parametrize("acceptance", ["line_search", "subspace"])
@pytest.mark.parametrize("range_policy", ["adaptive", "relaxation"])
@pytest.mark.parametrize("sampler", [ExactSolver(), SimulatedAnnealer(num_reads=4), LevelAnnealer()])
def test_an_own_objective(sampler, range_policy, acceptance):
    """The same trainer, policies and samplers minimise an objective without rows and classes."""
    method = Method(
        curvature=lambda objective: lambda point: [point.hessian()],  # joint: one problem over both blocks
        coordinates="raw",
        acceptance=acceptance,
        range_policy=range_policy,
        update_range=0.5,
    )
    trainer = Trainer(Valley(), sampler, method.resolved(), bits=5, seed=0, stopping=Stopping(max_iter=300))
    result = run(trainer, trainer.start(np.array([0.0, 1.0])))
    losses = [row["loss"] for row in result.history]
    assert losses == sorted(losses, reverse=True)
    assert result.point.loss < 1e-2
    assert any(row["lower_bound"] is None for row in result.history)  # on the ridge there is no certificate


@pytest.mark.parametrize("curvature", ["bound", "gauss_newton", lambda head: lambda point: [head.gram + np.eye(5)]])
def test_couplings_are_dropped_in_the_coordinates_that_bits_are_chosen_in(blobs, curvature):
    coordinates = LinearCoordinates(np.eye(5) + 0.3)
    clf = annealed(random_state=0, max_iter=5, max_couplings=30, coordinates=coordinates, curvature=curvature)
    assert max(problem.n_couplings for problem in clf.problems(*blobs)) <= 30
    assert all(row["loss_change"] <= 0 for row in clf.fit(*blobs).history_)


def test_policies_are_cloned_and_part_of_the_identity_of_a_checkpoint(blobs, tmp_path):
    path = tmp_path / "training.safetensors"
    clf = AnnealedClassifier(max_iter=3, random_state=0, method=Method(curvature=Damped(0.2)), checkpoint=path)
    assert clone(clf).method.curvature.damping == 0.2
    clf.fit(*blobs)
    again = clone(clf).set_params(checkpoint__resume=True, max_iter=4).fit(*blobs)
    assert again.n_iter_ == 4
    with pytest.raises(RuntimeError, match=r"curvature differ .*'damping': 0.2.*'damping': 0.3"):
        clone(clf).set_params(checkpoint__resume=True, method__curvature=Damped(0.3)).fit(*blobs)


def weighted(share):
    return lambda head: lambda point: [share * head.gram + np.diag(head.ridge)]


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("coordinates", LinearCoordinates(np.eye(5)), LinearCoordinates(2 * np.eye(5))),
        ("curvature", weighted(0.5), weighted(0.6)),
        (
            "curvature",
            partial(lambda share, head: weighted(share)(head), 0.5),
            partial(lambda share, head: weighted(share)(head), 0.7),
        ),
        ("curvature", partial(Damped.__call__, Damped(0.1)), partial(Damped.__call__, Damped(0.2))),
        ("range_policy", Chosen(np.full(3, 0.1)), Chosen(np.full(3, 0.2))),
    ],
)
def test_the_values_of_an_object_are_part_of_its_identity(blobs, tmp_path, name, one, other):
    """Arrays, values in a closure, arguments of a partial function."""
    path = tmp_path / "training.safetensors"
    annealed(max_iter=2, random_state=0, checkpoint=path, **{name: one}).fit(*blobs)
    again = {"max_iter": 3, "random_state": 0, "checkpoint": Checkpoint(path, resume=True)}
    assert annealed(**again, **{name: one}).fit(*blobs).n_iter_ == 3
    with pytest.raises(RuntimeError, match=f"{name} differ"):
        annealed(**again, **{name: other}).fit(*blobs)
    assert describe(one) == describe(copy.deepcopy(one)) != describe(other)


def test_loading_a_model_file_warns_of_objects_that_are_not_stored(blobs, tmp_path):
    fit(*blobs, acceptance=Greedy()).save(tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match="method__acceptance=.*Greedy.* is not part of a model file"):
        assert AnnealedClassifier.load(tmp_path / "model.safetensors").method.acceptance == "subspace"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acceptance": lambda proposal: True}, "acceptance rule returned True; expected a Decision"),
        ({"acceptance": lambda proposal: Decision(np.array([True]))}, "for each of 3 problems"),
        ({"curvature": lambda head: None}, "returned None for the objective; expected a function of the point"),
        ({"curvature": lambda head: lambda point: np.eye(5)}, "expected a list of matrices"),
        ({"curvature": lambda head: lambda point: [np.eye(3)]}, "for 3 parameters, and there are 3 blocks of 5"),
        ({"curvature": lambda head: lambda point: [np.eye(5)] * 2}, "2 matrices for 3 problems"),
        ({"curvature": lambda head: lambda point: [np.eye(4)]}, "for 4 parameters, and there are 3 blocks of 5"),
        ({"curvature": lambda head: lambda point: [np.ones((5, 4))]}, r"shape \(5, 4\)"),
        ({"range_policy": lambda ranges, outcome: ranges}, "an object with the methods first, choose, revise, rate"),
        ({"initialization": lambda head, seed: np.zeros(3)}, r"shape \(3,\); expected finite numbers, \(5, 3\)"),
        ({"range_policy": Chosen(np.zeros(3))}, "finite number above 0 for each of 3 problems"),
        ({"range_policy": Chosen(np.ones(2))}, "for each of 3 problems"),
        ({"range_policy": Chosen(np.full(3, np.nan))}, "finite number above 0"),
        ({"precision_policy": Bits(0)}, "precision policy chose is 0; it must be a whole number, at least 1"),
        ({"precision_policy": Bits(2.5)}, "precision policy chose is 2.5"),
        ({"range_policy": Revised(None)}, "the range policy kept None"),
        ({"range_policy": Revised(np.ones(1))}, "for each of 3 problems"),
        ({"precision_policy": First(0)}, "precision policy chose is 0"),
        ({"acceptance": lambda p: Decision(np.array([1, 2, 0]))}, "a truth value for each of 3 problems"),
        (
            {"initialization": lambda head, seed: np.full((5, 3), np.nan)},
            "initialization gave float64 .* expected finite numbers",
        ),
        ({"acceptance": lambda p: Decision(p.energies < 0, np.nan)}, "multiple nan; expected a finite number"),
        ({"coordinates": np.eye(5)}, r"an array of shape \(5, 5\); pass LinearCoordinates\(matrix\)"),
        ({"coordinates": 3}, "an object with the methods adapted, pull_curvature, pull_gradients, push"),
        ({"precision_policy": PrecisionPolicy}, "the class PrecisionPolicy; pass an object of it"),
    ],
)
def test_objects_that_do_not_fit_are_refused_with_what_was_expected(blobs, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        fit(*blobs, **settings)
