"""AnnealedConvNet: a convolution network whose filters and head are found by annealing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from annealfit._support.errors import InvalidInputError, check_number, choose_or_own
from annealfit._support.files import StrPath
from annealfit._support.schema import Field, TensorFields
from annealfit.data.convolution import Images, join_filters, shifts_within, split_filters
from annealfit.data.features import RandomConvFeatures
from annealfit.data.features.random_convolution import Sizes
from annealfit.data.rows import Rows
from annealfit.models.base import AnnealedEstimator
from annealfit.models.classifier import AnnealedClassifier
from annealfit.models.data import LabelledTable, TrainingData
from annealfit.models.start import check_warm_start, initial_weights, seed_of_training
from annealfit.problems.coordinates import Coordinates, RawCoordinates
from annealfit.samplers import Sampler
from annealfit.training import DAMPINGS, DampingPolicy, FixedDamping, Plan, PrecisionPolicy, RangePolicy
from annealfit.training.acceptance import Acceptance
from annealfit.training.initialization import Initialization
from annealfit.training.loop import Callback
from annealfit.training.objectives import FILTER_CURVATURES, ConvNet, CurvatureFunction
from annealfit.training.objectives.conv_net import HEAD, FrozenNet, layer_name


class AnnealedConvNet(AnnealedEstimator):
    """Convolution network trained by QUBO solves: one per filter in a layer's turn, one per class in the head's.

    Layers of convolution (stride 1, no padding), ReLU and max-pooling, and a linear head, on images (N, H, W),
    (N, H, W, channels) or flattened rows. They start as `RandomConvFeatures` and `AnnealedClassifier` do. In a round
    the head has `head_steps` turns, and each trained layer has one: its filters' updates minimise a Gauss-Newton
    surrogate over `bits`-bit values, and are applied, as far as the acceptance rule says, only if the true loss on all
    images falls. The loss is not convex in the filters: other seeds end elsewhere.

    Parameters
    ----------
    n_filters, kernel_size, pool_size : int, or a sequence with a value per layer
    bits : int
        Bits per update of a weight, from 1 to 30. A filter's problem has (kernel_size²·channels + 1)·bits variables.
    max_iter : int
        Turns at most, of layers and of the head together.
    regularization : float
        λ of the penalty ½λ‖·‖² on the weights of the head and of the layers that are trained (not on the biases).
    trainable : "all", or a sequence of layers, the first being 1
        Which layers of convolution are trained. With none it is `RandomConvFeatures` and `AnnealedClassifier`.
    head_steps : int
        Turns of the head in a round.
    filter_curvature : {"by_filter", "joint"} or function
        Gauss-Newton with a problem for each filter, or one for all filters of a layer.
    damping : {"adaptive", "none"}, float or `annealfit.training.DampingPolicy`
        What is added to the diagonal of a filter's curvature, in units of its mean: less after a step that was taken
        and more after one that was not, nothing, or always the same.
    curvature_rows : int or None
        Images that a filter's curvature is taken from, drawn anew for every turn; None takes all. Loss and gradient
        are always those of all images.
    shifts : int
        Train on copies too, shifted by at most this many pixels: 1 makes five of every image, 2 thirteen.
    standardize : {"none", "pixels", "features"}
        As in `RandomConvFeatures`; "features" only where no layer is trained.
    image_shape : (H, W) or (H, W, channels), or None
        Shape of flattened rows; None takes rows as square grey images.
    curvature, coordinates : of the head's problems, as in `AnnealedClassifier`
    acceptance, range_policy, precision_policy, update_range, step, max_couplings : of all problems, as there
    initialization : of the head, as there
    tol : float
        As there where no layer is trained; for filters there is no certificate to stop by.
    sampler, class_weight, patience, time_limit, validation_fraction, early_stopping, warm_start, random_state, \
            callbacks, checkpoint, checkpoint_every, resume, verbose : as in `AnnealedClassifier`

    Attributes
    ----------
    filters_, biases_ : lists with one array per layer, (filters, channels, k, k) and (filters,)
    initial_filters_ : the filters before training; not part of a model file
    features_ : `RandomConvFeatures` with these filters
    coef_, intercept_, classes_, n_iter_, stop_reason_, optimality_gap_, best_iteration_ : as in `AnnealedClassifier`
        The gap is infinite where a layer is trained.
    history_ : list of dicts
        A row per turn, with `round` and `layer`: "head", "conv1", "conv2", ….

    Examples
    --------
    >>> from annealfit import load_dataset
    >>> data = load_dataset("digits", n_train=300, n_test=100)
    >>> net = AnnealedConvNet(n_filters=2, max_iter=28, random_state=0).fit(data.X_train, data.y_train)
    >>> [row["layer"] for row in net.history_[:8]]
    ['head', 'head', 'head', 'head', 'head', 'head', 'conv1', 'head']
    >>> net.filters_[0].shape, net.history_[-1]["loss"] < net.history_[6]["loss"]
    ((2, 1, 3, 3), True)

    """

    _kind_of_file = "convolution network"

    features_: RandomConvFeatures

    def __init__(
        self,
        n_filters: Sizes = 4,
        kernel_size: Sizes = 3,
        pool_size: Sizes = 2,
        bits: int = 3,
        max_iter: int = 200,
        regularization: float = 1e-3,
        *,
        trainable: str | Sequence[int] = "all",
        head_steps: int = 6,
        filter_curvature: str | Callable[[Any], Any] = "by_filter",
        damping: str | float | DampingPolicy = "adaptive",
        curvature_rows: int | None = 2000,
        shifts: int = 0,
        standardize: str = "none",
        image_shape: tuple[int, ...] | None = None,
        curvature: str | CurvatureFunction | None = None,
        coordinates: str | Coordinates = "centred",
        acceptance: str | Acceptance = "second_direction",
        range_policy: str | RangePolicy = "relaxation",
        precision_policy: str | PrecisionPolicy = "fixed",
        update_range: float | None = None,
        step: float = 1.0,
        max_couplings: int | None = None,
        initialization: str | Initialization = "zeros",
        sampler: Sampler | str | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-4,
        patience: int | None = 50,
        time_limit: float | None = None,
        validation_fraction: float | None = None,
        early_stopping: bool = False,
        warm_start: bool = False,
        random_state: Any = None,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_every: int = 50,
        resume: bool = False,
        verbose: int = 0,
    ) -> None:
        self.n_filters = n_filters
        self.kernel_size = kernel_size
        self.pool_size = pool_size
        self.bits = bits
        self.max_iter = max_iter
        self.regularization = regularization
        self.trainable = trainable
        self.head_steps = head_steps
        self.filter_curvature = filter_curvature
        self.damping = damping
        self.curvature_rows = curvature_rows
        self.shifts = shifts
        self.standardize = standardize
        self.image_shape = image_shape
        self.curvature = curvature
        self.coordinates = coordinates
        self.acceptance = acceptance
        self.range_policy = range_policy
        self.precision_policy = precision_policy
        self.update_range = update_range
        self.step = step
        self.max_couplings = max_couplings
        self.initialization = initialization
        self.sampler = sampler
        self.class_weight = class_weight
        self.tol = tol
        self.patience = patience
        self.time_limit = time_limit
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.verbose = verbose

    @property
    def filters_(self) -> list[NDArray[np.float64]]:
        """The filters (filters, channels, k, k) of every layer."""
        return self.features_.filters_

    @property
    def biases_(self) -> list[NDArray[np.float64]]:
        """The biases (filters,) of every layer."""
        return self.features_.biases_

    def to_pipeline(self) -> Pipeline:
        """The same predictions from a pipeline of two fitted steps: `RandomConvFeatures` and `AnnealedClassifier`."""
        tensors, manifest = super().to_tensors()
        known = AnnealedClassifier().get_params(deep=False)
        own = {name: value for name, value in manifest["parameters"].items() if name in known}
        head = AnnealedClassifier.from_tensors(tensors, {**manifest, "parameters": own, "not_stored": {}})
        return make_pipeline(self.features_, head)

    def loss_and_start(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> tuple[ConvNet, dict[str, NDArray[np.float64]]]:
        """The loss that `fit` would minimise and the weights that it would start from, for other optimisers.

        >>> from annealfit import load_dataset
        >>> data = load_dataset("digits", n_train=100, n_test=100)
        >>> loss, weights = AnnealedConvNet(random_state=0).loss_and_start(data.X_train, data.y_train)
        >>> list(weights), round(loss.at("head", weights).cross_entropy, 2)
        (['conv1', 'head'], 2.3)
        """
        seed = seed_of_training(self)
        data = clone(self)._training_data(X, y, sample_weight, None, seed)
        if not isinstance(data.objective, ConvNet):
            raise InvalidInputError("with trainable=() there is no loss of filters; AnnealedClassifier has the head's")
        return data.objective, self._first_weights(data, seed)

    def first_features(self, X: Any) -> RandomConvFeatures:
        """The features that a training on these images would start from."""
        return self._first_features(X, seed_of_training(self))

    def _plan(self, seed: int) -> Plan:
        plan, trained = super()._plan(seed), self.trained_layers()
        curvature = choose_or_own("filter_curvature", self.filter_curvature, FILTER_CURVATURES)
        check_number("head_steps", self.head_steps, Integral, minimum=1)
        check_number("shifts", self.shifts, Integral, minimum=0)
        if self.curvature_rows is not None:
            check_number("curvature_rows", self.curvature_rows, Integral, minimum=1)
        if trained and self.standardize == "features":
            raise InvalidInputError(
                "standardize='features' scales what filters make before any is trained; use 'pixels', or trainable=()"
            )
        of_filters = replace(plan, curvature=curvature, coordinates=RawCoordinates(), damping=self._damping_policy())
        return replace(plan, special={layer_name(layer): of_filters for layer in trained})

    def _damping_policy(self) -> DampingPolicy:
        given: Any = self.damping
        if isinstance(given, Real):
            check_number("damping", given, minimum=0)
            return FixedDamping(float(given))
        return choose_or_own("damping", given, DAMPINGS, ("first", "revise"))

    def trained_layers(self) -> list[int]:
        """The layers that are trained, counted from 0."""
        count = len(self._blank_features(0).layers())
        given: Any = self.trainable
        if isinstance(given, str) and given == "all":
            return list(range(count))
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        if not listed or not all(isinstance(layer, Integral) and 1 <= int(layer) <= count for layer in given):
            raise InvalidInputError(
                f"trainable is {given!r}; it must be 'all', or a list of layers from 1 to {count}; () is none"
            )
        return sorted({int(layer) - 1 for layer in given})

    def _blank_features(self, seed: int) -> RandomConvFeatures:
        return RandomConvFeatures(
            self.n_filters,
            self.kernel_size,
            self.pool_size,
            standardize=self.standardize,
            image_shape=self.image_shape,
            random_state=seed,
        )

    def _checked_inputs(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        if isinstance(X, Rows):
            raise InvalidInputError("a network is trained on images, not on rows of features; pass an array of them")
        if y is None:
            raise InvalidInputError("a classifier needs labels: pass y, one for each image")
        images = check_array(X, allow_nd=True, dtype="numeric", input_name="X")
        targets = column_or_1d(y, warn=True)
        check_consistent_length(images, targets)
        return images, targets

    def _data_of_tables(
        self, table: LabelledTable, held_out: LabelledTable | None, classes: NDArray[Any], seed: int
    ) -> TrainingData:
        self._drawn = self._first_features(table.features, seed)
        self.n_features_in_ = self._drawn.n_features_in_
        trained = self.trained_layers()
        if not trained and not self.shifts:
            return self._data_of_features(table, held_out, classes)
        filters = [join_filters(*layer) for layer in zip(self._drawn.filters_, self._drawn.biases_, strict=True)]

        def net(part: LabelledTable, regularization: float, shifts: int) -> ConvNet:
            return ConvNet(
                self._images(part, classes, shifts),
                self._drawn.network_,
                filters,
                trained,
                regularization,
                head_turns=int(self.head_steps),
                curvature_rows=None if self.curvature_rows is None else int(self.curvature_rows),
                seed=seed,
            )

        objective = net(table, self.regularization, int(self.shifts))
        if held_out is None:
            return TrainingData(classes, objective, objective.images)
        validation = net(held_out, 0.0, 0)
        return TrainingData(classes, objective, objective.images, validation, validation.images)

    def _first_features(self, images: NDArray[Any], seed: int) -> RandomConvFeatures:
        drawn = self._blank_features(seed).fit(images)
        if not (self.warm_start and hasattr(self, "coef_")):
            return drawn
        was, now = ([layer.shape for layer in features.filters_] for features in (self.features_, drawn))
        if was != now:
            raise InvalidInputError(f"warm_start=True continues a training of filters {was}; these would be {now}")
        return drawn.with_filters(self.filters_, self.biases_)

    def _data_of_features(
        self, table: LabelledTable, held_out: LabelledTable | None, classes: NDArray[Any]
    ) -> TrainingData:
        """With no layer to train, features are worked out once: a linear head is all there is."""
        tables = [
            None if part is None else replace(part, features=self._drawn.transform(part.features))
            for part in (table, held_out)
        ]
        rows, others = (None if part is None else part.rows(classes) for part in tables)
        assert rows is not None, "there are images to train on"
        data = TrainingData.of_rows(rows, classes, others, self.regularization)
        return replace(data, objective=FrozenNet(data.objective))

    def _images(self, table: LabelledTable, classes: NDArray[Any], shifts: int) -> Images:
        scaler = self._drawn.pixel_scaler_
        return Images(
            self._drawn.as_images(table.features),
            np.searchsorted(classes, table.targets),
            len(classes),
            table.weights,
            shifts=shifts_within(shifts),
            scaling=None if scaler is None else (scaler.mean_, scaler.scale_),
        )

    def _first_weights(self, data: TrainingData, seed: int) -> Any:
        head = data.objective.first_head()
        if self.warm_start and hasattr(self, "coef_"):
            check_warm_start(self, data, "{} features", self.coef_.shape[1], head.n_parameters - 1)
            weights = np.vstack([self.coef_.T, self.intercept_])
        else:
            weights = initial_weights(self, head, seed)
        return data.objective.first_weights(weights)

    def _set_weights(self, weights: Mapping[str, NDArray[np.float64]]) -> None:
        self.features_ = with_trained_layers(self._drawn, weights)
        self.initial_filters_ = self._drawn.filters_
        self._set_head(weights[HEAD])

    def _features(self, X: Any) -> NDArray[np.float64]:
        return self.features_.transform(X)

    def _quantize_layers(self, found: Self, X: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        from annealfit.models.low_bit import quantized_filters

        found.features_, layers = quantized_filters(self.features_, X, settings)
        return layers

    def to_tensors(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The fitted network as tensors and a JSON manifest, to be stored in a file of any kind."""
        tensors, manifest = super().to_tensors()
        of_features, manifest["features"] = self.features_.to_tensors()
        return {**tensors, **{f"features.{name}": tensor for name, tensor in of_features.items()}}, manifest

    @classmethod
    def from_tensors(cls, tensors: Any, manifest: Any) -> Self:
        """The inverse of `to_tensors`."""
        fields, document = TensorFields.of(tensors), Field.of(manifest)
        net = super().from_tensors(fields, document)
        net.features_ = RandomConvFeatures.from_tensors(fields.under("features."), document["features"])
        fields.real("coef", (None, net.features_.n_features_out_))  # the numbers of features agree
        net.n_features_in_ = net.features_.n_features_in_
        return net

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def with_trained_layers(features: RandomConvFeatures, weights: Mapping[str, NDArray[np.float64]]) -> RandomConvFeatures:
    """The features with the filters that weights of a network have for some of the layers."""
    filters, biases = list(features.filters_), list(features.biases_)
    for layer, shape in enumerate(features.network_.layers):
        if layer_name(layer) in weights:
            filters[layer], biases[layer] = split_filters(weights[layer_name(layer)], shape)
    return features.with_filters(filters, biases)
