"""From the arguments of `fit` to rows and objectives, with all checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from annealfit._support.arrays import unique_labels, without_extremes
from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.randomness import child_seed
from annealfit.data.rows import DaskRows, Rows, Selection, SlicedTable, rows_of
from annealfit.data.rows.tables import check_table
from annealfit.training.method import as_method
from annealfit.training.objectives import LinearHead

if TYPE_CHECKING:
    from annealfit.models.base import AnnealedEstimator
    from annealfit.models.classifier import AnnealedClassifier

# The path of the split below a training's seed; a training's own paths are 0 and 1.
_VALIDATION_SPLIT = 2


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The objective of a training, one to validate on if there is one, their data, and the classes."""

    classes: NDArray[Any]  # labels, sorted
    objective: Any
    source: Any  # data with a `digest()`
    validation: Any = None
    held_out: Any = None

    @classmethod
    def of_rows(
        cls, estimator: AnnealedClassifier, rows: Rows, classes: NDArray[Any], held_out: Rows | None = None
    ) -> TrainingData:
        """Return the data of a linear head."""
        compiled = as_method(estimator.method).arithmetic != "numpy"
        validation = None if held_out is None else LinearHead(held_out, 0.0, compiled=compiled)
        return cls(classes, LinearHead(rows, estimator.regularization, compiled=compiled), rows, validation, held_out)


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """Features (N, d) or images (N, …), targets (N,) of any type, and optional weights (N,)."""

    features: Any
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None

    def take(self, chosen: NDArray[Any]) -> LabelledTable:
        """Return the rows at ascending positions."""
        weights = None if self.weights is None else self.weights[chosen]
        features = Selection(self.features, chosen) if isinstance(self.features, SlicedTable) else self.features[chosen]
        return LabelledTable(features, self.targets[chosen], weights)

    def rows(self, classes: NDArray[Any], arithmetic: str) -> Rows:
        """Return the table as rows, its targets as positions in `classes`."""
        labels = np.searchsorted(classes, self.targets)
        return rows_of(self.features, labels, len(classes), self.weights, arithmetic=arithmetic)


def are_plain(X: Any, y: Any) -> bool:
    """Whether X and y are arrays of finite numbers and integer labels, which need no conversion.

    scikit-learn's own checks take as long as an iteration on small data.
    """
    if not (type(X) is type(y) is np.ndarray and X.dtype == np.float64 and y.dtype.kind in "iub"):
        return False
    with np.errstate(over="ignore", invalid="ignore"):  # then scikit-learn checks
        return X.ndim == 2 and X.size > 0 and y.shape == X.shape[:1] and bool(np.isfinite(X.sum()))


def checked_table(estimator: AnnealedEstimator, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
    """Return a table that is read in slices, and its targets; its numbers are checked chunk by chunk."""
    check_table(X)
    validate_data(estimator, X, skip_check_array=True, reset=reset)  # the number of features, as everywhere
    _check_labels(y)
    targets = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
    if len(targets) != X.shape[0]:
        raise InvalidInputError(f"X has {X.shape[0]} rows and y {len(targets)} labels; there must be a label per row")
    return SlicedTable(X), targets


def training_tables(
    estimator: AnnealedEstimator, X: Any, y: Any, sample_weight: Any, validation_data: Any, seed: int
) -> tuple[LabelledTable, LabelledTable | None, NDArray[Any]]:
    """Return the table of `fit`, the one to validate on, and the classes."""
    table = _table(estimator, X, y, sample_weight)
    classes = check_classes(_labels_of(table.targets))
    given = _validation_data(estimator, validation_data)
    table, held_out = _split(estimator, table, seed)
    table = _with_class_weights(estimator.class_weight, table, classes)
    if given is not None:
        held_out = _table(estimator, *given, reset=False)
        _check_known(held_out.targets, classes, "validation_data")
    return table, held_out, classes


def batch_data(
    estimator: AnnealedClassifier, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, *, first: bool
) -> TrainingData:
    """Return the data of one `partial_fit`, whose labels must be among the known classes."""
    table, classes = _table(estimator, X, y, sample_weight, reset=first), estimator.classes_
    if isinstance(estimator.class_weight, str):
        raise InvalidInputError(
            f"class_weight={estimator.class_weight!r} needs to see all labels at once, which partial_fit does not; "
            "pass a dict of weights, or sample_weight"
        )
    _check_known(table.targets, classes, "y")
    table = _with_class_weights(estimator.class_weight, table, classes)
    return TrainingData.of_rows(estimator, table.rows(classes, as_method(estimator.method).arithmetic), classes)


def data_of_own_rows(
    estimator: AnnealedClassifier, rows: Rows, y: Any, sample_weight: Any, validation_data: Any
) -> TrainingData:
    """Return the data of user-defined rows, which have their own labels and weights."""
    if not (y is sample_weight is estimator.class_weight is estimator.validation_fraction is None):
        raise InvalidInputError(
            "rows bring their labels and weights with them; leave y, sample_weight, class_weight and "
            "validation_fraction out"
        )
    if not isinstance(validation_data, Rows | None):
        raise InvalidInputError("with rows to train on, validation_data must be rows too")
    _check_early_stopping(estimator, validation_data)
    for given in (rows, validation_data):
        if given is not None:
            _check_rows(given, rows)
    estimator.__dict__.pop("feature_names_in_", None)  # of an earlier fit
    estimator.n_features_in_ = rows.n_parameters - 1
    return TrainingData.of_rows(estimator, rows, np.asarray(rows.classes), validation_data)


def data_of_dask(
    estimator: AnnealedClassifier, X: Any, y: Any, sample_weight: Any, validation_data: Any
) -> TrainingData:
    """Return the data of Dask arrays; their rows are not loaded into this process."""
    _check_labels(y)
    if estimator.validation_fraction is not None:
        raise InvalidInputError("validation_fraction is for arrays; split the rows yourself and pass validation_data")
    given, arithmetic = _validation_data(estimator, validation_data), as_method(estimator.method).arithmetic
    rows = DaskRows(X, y, sample_weight, arithmetic=arithmetic)
    check_classification_targets(check_classes(rows.classes))
    validate_data(estimator, X, skip_check_array=True, reset=True)
    if estimator.class_weight is not None:
        rows.weigh_classes(_class_factors(estimator.class_weight, rows.weights_of_classes, rows.classes))
    held_out = None
    if given is not None:
        validate_data(estimator, given[0], skip_check_array=True, reset=False)
        held_out = DaskRows(*given, rows.classes, arithmetic=arithmetic)
    return TrainingData.of_rows(estimator, rows, rows.classes, held_out)


def check_classes(labels: ArrayLike | None) -> NDArray[Any]:
    """Return the sorted classes, of which there must be two or more."""
    if labels is None:
        raise InvalidInputError("the first call of partial_fit needs classes: all labels that will ever come")
    classes = np.unique(np.asarray(labels))
    if len(classes) < 2:
        raise InvalidInputError(
            f"the labels hold one class only, {', '.join(map(str, classes))}; a classifier needs at least two"
        )
    return classes


def _check_labels(y: Any) -> None:
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None: a classifier needs labels")


def _labels_of(targets: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted labels; targets that are not labels are refused.

    Integers are always labels; where most of them are different scikit-learn warns.
    """
    classes = unique_labels(targets)
    if targets.dtype.kind not in "iub" or 2 * len(classes) > len(targets):
        check_classification_targets(targets)
    return classes


def _check_known(targets: NDArray[Any], classes: NDArray[Any], name: str) -> None:
    unknown = np.setdiff1d(_labels_of(targets), classes)
    if len(unknown):
        raise InvalidInputError(f"{name} has labels {unknown.tolist()[:5]} that are not among the classes trained on")


def _validation_data(estimator: AnnealedEstimator, given: Any) -> tuple[Any, Any, Any] | None:
    """Return X, y and weights of validation data, which must fit the settings of the estimator."""
    _check_early_stopping(estimator, given)
    if given is None:
        return None
    if estimator.validation_fraction is not None:
        raise InvalidInputError("give validation_data or validation_fraction, not both")
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise InvalidInputError("validation_data must be a tuple (X, y) or (X, y, sample_weight)")
    return (*given, None)[:3]


def _check_early_stopping(estimator: AnnealedEstimator, validation_data: Any) -> None:
    if estimator.early_stopping and estimator.validation_fraction is None and validation_data is None:
        raise InvalidInputError("early_stopping needs validation data: pass them to fit, or set validation_fraction")


def _table(
    estimator: AnnealedEstimator, X: Any, y: Any, sample_weight: ArrayLike | None, *, reset: bool = True
) -> LabelledTable:
    """Return the rows with a weight above zero, checked."""
    features, targets = estimator._checked_inputs(X, y, reset=reset)
    if sample_weight is None:
        return LabelledTable(features, targets, None)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(len(targets), float(sample_weight))
    weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.shape != targets.shape:
        raise InvalidInputError(f"sample_weight has shape {weights.shape}; expected {targets.shape}")
    if (weights < 0).any() or not weights.any():
        raise InvalidInputError("sample_weight must hold numbers of at least 0, and not only zeros")
    table = LabelledTable(features, targets, without_extremes(weights))
    return table if weights.all() else table.take(np.flatnonzero(weights))


def _with_class_weights(class_weight: Any, table: LabelledTable, classes: NDArray[Any]) -> LabelledTable:
    if class_weight is None:
        return table
    positions = np.searchsorted(classes, table.targets)
    totals = np.bincount(positions, weights=table.weights, minlength=len(classes))
    of_classes = _class_factors(class_weight, totals, classes)
    weights = of_classes[positions] * (1.0 if table.weights is None else table.weights)
    return LabelledTable(table.features, table.targets, without_extremes(weights))


def _class_factors(class_weight: Any, totals: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the factors (C,) of the weights of each class, for classes with these total weights (C,)."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        # As scikit-learn defines it: every class has the same total weight, and all rows together the same as before.
        factors = totals.sum() / (len(classes) * totals)
    elif isinstance(class_weight, Mapping):
        factors = compute_class_weight(dict(class_weight), classes=classes, y=classes)
    else:
        raise InvalidInputError(f"class_weight is {class_weight!r}; it must be 'balanced', a dict, or None")
    if not np.isfinite(factors).all() or (factors <= 0).any():
        raise InvalidInputError(
            f"class_weight is {class_weight!r}; weights must be finite numbers above 0: to leave a class out, leave "
            "its rows out"
        )
    return without_extremes(factors)


def _split(estimator: AnnealedEstimator, table: LabelledTable, seed: int) -> tuple[LabelledTable, LabelledTable | None]:
    fraction = estimator.validation_fraction
    if fraction is None:
        return table, None
    check_number("validation_fraction", fraction, above=0, maximum=1)
    state = child_seed(seed, _VALIDATION_SPLIT) % 2**32
    try:
        chosen, held_out = train_test_split(
            np.arange(len(table.targets)), test_size=float(fraction), stratify=table.targets, random_state=state
        )
    except ValueError as error:
        raise InvalidInputError(
            f"validation_fraction is {fraction!r}; the rows cannot be split with every class in both parts ({error})"
        ) from error
    return table.take(np.sort(chosen)), table.take(np.sort(held_out))


def _check_rows(rows: Rows, others: Rows) -> None:
    """Raise unless user-defined rows have the stated sizes, and those of the other rows."""
    said = rows.n_parameters, rows.n_classes, len(rows.classes)
    if said != (others.n_parameters, others.n_classes, others.n_classes) or rows.n_classes < 2:
        raise InvalidInputError(
            f"rows have n_parameters, n_classes and number of classes {said}; expected {others.n_parameters}, "
            f"{others.n_classes} and {others.n_classes}, and at least two classes"
        )
    if rows.is_checked:
        return
    first = next(iter(rows.chunks()), None)
    if first is None or len(first.labels) == 0:
        raise InvalidInputError("there are no rows: chunks() gave none, or an empty one first")
    labels, width = np.asarray(first.labels), first.moments(np.ones((1, len(first.labels)))).shape[1]
    if width != rows.n_parameters or labels.min() < 0 or labels.max() >= rows.n_classes:
        raise InvalidInputError(
            f"the first chunk has {width} parameters per row and labels from {labels.min()} to {labels.max()}; "
            f"expected {rows.n_parameters} (n_parameters: the features and 1) and labels below {rows.n_classes}"
        )
