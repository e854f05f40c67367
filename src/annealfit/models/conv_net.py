"""AnnealedConvNet: a convolution network whose filters and head are found by annealing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.schema import Field, TensorFields
from annealfit.data.convolution import Images, join_filters, shifts_within, split_filters
from annealfit.data.features import RandomConvFeatures
from annealfit.data.features.random_convolution import Sizes
from annealfit.data.rows import Rows
from annealfit.models.base import AnnealedEstimator
from annealfit.models.classifier import AnnealedClassifier
from annealfit.models.data import LabelledTable, TrainingData
from annealfit.models.settings import accept_old_keywords, stopping_of
from annealfit.samplers import Sampler
from annealfit.training import FilterMethod
from annealfit.training.method import as_method
from annealfit.training.network import NetworkTrainer
from annealfit.training.objectives import ConvNet
from annealfit.training.objectives.conv_net import HEAD, layer_name


@accept_old_keywords
@dataclass(repr=False, eq=False)
class AnnealedConvNet(AnnealedEstimator):
    """Convolution network trained by QUBO solves: one per filter of a layer, one per class of the head.

    Layers of convolution (stride 1, no padding), ReLU and max-pooling, and a linear head, on images (N, H, W),
    (N, H, W, channels) or flattened rows. They start as `RandomConvFeatures` and `AnnealedClassifier` do. A round is
    several steps of the head and one of each trained layer: updates of its filters minimise a Gauss-Newton surrogate
    over `bits`-bit values, and are applied, as far as the acceptance rule says, only if the true loss on all images
    decreases. The loss is not convex in the filters: other seeds end elsewhere.

    Parameters
    ----------
    n_filters, kernel_size, pool_size : int, or a sequence with a value per layer
    bits : int
        Bits per update of a weight, from 1 to 30. A filter's problem has (kernel_size²·channels + 1)·bits variables.
    max_iter : int
        Maximum number of steps, of layers and of the head together.
    regularization : float
        λ of the penalty ½λ‖·‖² on the weights of the head and of the layers that are trained (not on the biases).
    method : {"annealfit", "descent", "literal", "matched"} or `annealfit.Method`
        As in `AnnealedClassifier`. Curvature, coordinates and initialization are those of the head, the rest that of
        the filters too.
    filter_method : `annealfit.training.FilterMethod` or None
        Which layers are trained, how often, and with which curvature and damping.
    shifts : int
        Train on copies too, shifted by at most this many pixels: 1 makes five of every image, 2 thirteen.
    standardize : {"none", "pixels"}
        As in `RandomConvFeatures`.
    image_shape : (H, W) or (H, W, channels), or None
        Shape of flattened rows; None takes rows as square grey images.
    sampler, class_weight, patience, time_limit, validation_fraction, early_stopping, warm_start, random_state, \
            callbacks, checkpoint, verbose : as in `AnnealedClassifier`

    Attributes
    ----------
    filters_, biases_ : lists with one array per layer, (filters, channels, k, k) and (filters,)
    initial_filters_ : the filters before training; not part of a model file
    features_ : `RandomConvFeatures` with these filters
    coef_, intercept_, classes_, n_iter_, stop_reason_, optimality_gap_, best_iteration_ : as in `AnnealedClassifier`
        The gap is infinite.
    history_ : list of dicts
        A row per step, with `round` and `layer`: "head", "conv1", "conv2", ….

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
    n_filters: Sizes = 4
    kernel_size: Sizes = 3
    pool_size: Sizes = 2
    bits: int = 3
    max_iter: int = 200
    regularization: float = 1e-3
    _: KW_ONLY
    filter_method: FilterMethod | None = None
    shifts: int = 0
    standardize: str = "none"
    image_shape: tuple[int, ...] | None = None

    features_: RandomConvFeatures = field(init=False)

    @property
    def filters_(self) -> list[Array]:
        """The filters (filters, channels, k, k) of every layer."""
        return self.features_.filters_

    @property
    def biases_(self) -> list[Array]:
        """The biases (filters,) of every layer."""
        return self.features_.biases_

    def to_pipeline(self) -> Pipeline:
        """Return a pipeline of two fitted steps with the same predictions: RandomConvFeatures, AnnealedClassifier."""
        tensors, manifest = super().to_tensors()
        known = AnnealedClassifier().get_params(deep=False)
        own = {name: value for name, value in manifest["parameters"].items() if name in known}
        head = AnnealedClassifier.from_tensors(tensors, {**manifest, "parameters": own, "not_stored": {}})
        return make_pipeline(self.features_, head)

    def loss_and_start(self, X: Any, y: ArrayLike, sample_weight: Any = None) -> tuple[ConvNet, dict[str, Array]]:
        """Return the loss that `fit` minimises and the weights that it starts from, for other optimisers.

        >>> from annealfit import load_dataset
        >>> data = load_dataset("digits", n_train=100, n_test=100)
        >>> loss, weights = AnnealedConvNet(random_state=0).loss_and_start(data.X_train, data.y_train)
        >>> list(weights), round(loss.at(weights).cross_entropy, 2)
        (['conv1', 'head'], 2.3)
        """
        seed = self._seed()
        data = clone(self)._training_data(X, y, sample_weight, None, seed)
        return data.objective, self._first_weights(data, seed)

    def first_features(self, X: Any) -> RandomConvFeatures:
        """Return the features that a training on these images starts from."""
        return self._first_features(X, self._seed())

    def _as_settings(self, name: str) -> Any:
        given = super()._as_settings(name)
        return FilterMethod() if name == "filter_method" and given is None else given

    def _check_settings(self) -> None:
        super()._check_settings()
        check_number("shifts", self.shifts, Integral, minimum=0)
        if self.standardize == "features":
            raise InvalidInputError(
                "standardize='features' scales what filters make before any is trained; use 'pixels'"
            )
        if not isinstance(self.filter_method, FilterMethod | None):
            raise InvalidInputError(f"filter_method is {self.filter_method!r}; pass a FilterMethod, or None")
        self._filters.resolved(as_method(self.method))
        self.trained_layers()

    @property
    def _filters(self) -> FilterMethod:
        return self.filter_method or FilterMethod()

    def trained_layers(self) -> list[int]:
        """Return the layers that are trained, counted from 0."""
        return self._filters.layers_of(len(self._blank_features(0).layers()))

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
        self._drawn = drawn = self._first_features(table.features, seed)
        self.n_features_in_, scaler = drawn.n_features_in_, drawn.pixel_scaler_
        filters = [join_filters(*layer) for layer in zip(drawn.filters_, drawn.biases_, strict=True)]
        trained, rows = self.trained_layers(), self._filters.curvature_rows

        def net(part: LabelledTable, regularization: float, shifts: int) -> ConvNet:
            images = Images(
                drawn.as_images(part.features),
                np.searchsorted(classes, part.targets),
                len(classes),
                part.weights,
                shifts=shifts_within(shifts),
                scaling=None if scaler is None else (scaler.mean_, scaler.scale_),
            )
            return ConvNet(images, drawn.network_, filters, trained, regularization, curvature_rows=rows, seed=seed)

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

    def _first_weights(self, data: TrainingData, seed: int) -> dict[str, Array]:
        net: ConvNet = data.objective
        head = net.head(net.filters)
        if self.warm_start and hasattr(self, "coef_"):
            self._check_warm_start(data.classes, head.n_parameters - 1)
            return net.first_weights(self._head_weights)
        return net.first_weights(self._initial_head(head, seed)[np.argsort(net.network.order)])

    def _trainer(self, data: TrainingData, sampler: Sampler, seed: int) -> NetworkTrainer:
        method = as_method(self.method)
        filter_method, damping = self._filters.resolved(method)
        return NetworkTrainer(
            data.objective,
            sampler,
            method.resolved(),
            filter_method,
            damping=damping,
            head_steps=int(self._filters.head_steps),
            bits=int(self.bits),
            seed=seed,
            stopping=stopping_of(self),
            validation=data.validation,
            first_images=self._filters.first_images,
        )

    def _set_weights(self, weights: Mapping[str, Array]) -> None:
        self.features_ = with_trained_layers(self._drawn, weights)
        self.initial_filters_ = self._drawn.filters_
        self._set_head(weights[HEAD])

    def _features(self, X: Any) -> NDArray[np.float64]:
        return self.features_.transform(X)

    def to_tensors(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the fitted network as tensors and a JSON manifest, to be stored in a file of any kind."""
        tensors, manifest = super().to_tensors()
        of_features, manifest["features"] = self.features_.to_tensors()
        return {**tensors, **{f"features.{name}": tensor for name, tensor in of_features.items()}}, manifest

    @classmethod
    def from_tensors(cls, tensors: Any, manifest: Any) -> Self:
        """Invert `to_tensors`."""
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
    """Return the features with the filters of a network's weights."""
    filters, biases = list(features.filters_), list(features.biases_)
    for layer, shape in enumerate(features.network_.layers):
        if layer_name(layer) in weights:
            filters[layer], biases[layer] = split_filters(weights[layer_name(layer)], shape)
    return features.with_filters(filters, biases)
