"""OnnxFeatures: any ONNX network, or any of its inner outputs, as a scikit-learn transformer."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from annealfit._support.arrays import as_real
from annealfit._support.errors import FileFormatError, InvalidInputError, check_number
from annealfit._support.files import StrPath
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.data.convolution import with_channels
from annealfit.data.features.onnx_files import as_type, open_session, read_network, reduce_to, types_of_inputs
from annealfit.data.features.scaling import map_dask_rows
from annealfit.data.rows import is_dask, is_out_of_core


@dataclass(repr=False, eq=False)
class OnnxFeatures(TransformerMixin, BaseEstimator):
    """Images, or rows → the output of a network of any framework, flattened to rows of features.

    The network runs on onnxruntime, in batches, and is never trained. A fitted transformer holds the network itself.

    Parameters
    ----------
    path : path of an ONNX file
    output : str or None
        The output to take, inner ones included (`OnnxFeatures.outputs(path)` lists them); None is the network's own.
        Operations that it does not need are not run.
    batch_size : int
        Rows that go through the network at once, where it does not fix their number itself.
    image_shape : (H, W) or (H, W, channels), or None
        Shape of flattened rows that are images; None takes X as it comes.
    channels_first : bool
        Whether the network takes images as (channels, H, W), as PyTorch's do; X has the channels last in any case.
    mean, std : number, or one per channel
        The network is given `(x − mean) / std`.
    inputs : mapping or None
        Values of the network's other inputs by name, where it has several: `{"mask": 1}`. They are the same for all
        rows and broadcast to the shapes that the network takes. A network with a state of one row needs `batch_size=1`.

    Attributes
    ----------
    output_ : the name of the output
    n_features_out_ : d
    input_shape_ : shape of a row of X in `fit`
    model_ : the network that is run, as bytes

    Examples
    --------
    Needs the extra `onnx`; docs/datasets.md makes a network and uses it.

    """

    path: StrPath
    output: str | None = None
    _: KW_ONLY
    batch_size: int = 256
    image_shape: Sequence[int] | None = None
    channels_first: bool = True
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    inputs: Mapping[str, Any] | None = None

    @staticmethod
    def outputs(path: StrPath) -> list[str]:
        """Return the names of the outputs of all operations of a network, from the first to the last."""
        return _output_names(read_network(path))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the network, and send the first row of X through it."""
        self._check_settings()
        model = read_network(self.path)
        _reduce(model, self.output, self.path, self.inputs or {})
        self.output_ = model.graph.output[0].name
        self.model_ = model.SerializeToString()
        self.__dict__.pop("_open_session", None)
        given = _checked(X)
        self.input_shape_ = tuple(given.shape[1:])
        self.n_features_in_ = math.prod(self.input_shape_)
        first = given[:1].compute() if is_dask(given) else np.asarray(given[:1])
        found = self._run(first)
        self.n_features_out_, self.dtype_ = found.shape[1], found.dtype
        return self

    def _check_settings(self) -> None:
        check_number("batch_size", self.batch_size, Integral, minimum=1)
        for name, least in (("mean", -np.inf), ("std", 0.0)):
            values = as_real(np.ravel(getattr(self, name)), name, ndim=1)
            if not (values > least).all():
                raise InvalidInputError(f"{name} is {getattr(self, name)!r}; it must hold numbers above {least:g}")
        if self.image_shape is not None:
            with_channels(self.image_shape)

    def transform(self, X: Any) -> Any:
        """Compute features of shape (N, d), in the network's precision; of a Dask array lazily, as a Dask array."""
        check_is_fitted(self)
        given = _checked(X)
        size = math.prod(given.shape[1:])
        if size != self.n_features_in_:
            raise InvalidInputError(f"X has rows of {size} values; expected {self.n_features_in_}, as in fit")
        if is_dask(given):
            return map_dask_rows(given, copy.copy(self).transform, self.n_features_out_, self.dtype_)
        features = np.empty((given.shape[0], self.n_features_out_), self.dtype_)
        for first in range(0, len(features), self.batch_size):
            batch = np.asarray(given[first : first + self.batch_size])
            features[first : first + len(batch)] = self._run(batch)
        return features

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return names such as `relu_17`."""
        check_is_fitted(self)
        return np.array([f"{self.output_}_{number}" for number in range(self.n_features_out_)], dtype=object)

    def to_tensors(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the fitted transformer, with its network, as tensors and a JSON manifest."""
        check_is_fitted(self)
        settings = {name: _plain(value) for name, value in self.get_params().items() if name != "path"}
        manifest = {
            "kind": "onnx",
            "settings": settings,
            "output": self.output_,
            "n_features_in": self.n_features_in_,
            "input_shape": list(self.input_shape_),
            "n_features_out": self.n_features_out_,
            "dtype": np.dtype(self.dtype_).name,
        }
        return {"model": np.frombuffer(self.model_, dtype=np.uint8)}, manifest

    @classmethod
    def from_tensors(cls, tensors: Any, manifest: Any) -> Self:
        """Return the transformer that `to_tensors` stored."""
        stored, document = TensorFields.of(tensors), Field.of(manifest)
        settings = {name: value.plain() for name, value in document["settings"].entries().items()}
        with settings_of(document["settings"]):
            features = cls("", **settings)
            features._check_settings()
        features.model_ = stored.whole("model", (None,), maximum=255).astype(np.uint8).tobytes()
        features.output_ = document["output"].text()
        features.n_features_in_ = document["n_features_in"].whole(minimum=1)
        own = document.get("input_shape")  # 0.2.0 did not store it
        features.input_shape_ = (
            (features.n_features_in_,) if own is None else tuple(size.whole(minimum=1) for size in own.items(9))
        )
        if own is not None and math.prod(features.input_shape_) != features.n_features_in_:
            own.refuse(f"sizes whose product is {features.n_features_in_}")
        features.n_features_out_ = document["n_features_out"].whole(minimum=1)
        features.dtype_ = np.dtype(document["dtype"].one_of(("float16", "float32", "float64")))
        return features

    @property
    def image_shape_(self) -> tuple[int, int, int]:
        """(H, W, channels) of the images; only where `image_shape` says so."""
        if self.image_shape is None:
            raise InvalidInputError("the size of images is unknown; give OnnxFeatures an image_shape")
        return with_channels(self.image_shape)

    @property
    def _session(self) -> tuple[Any, dict[str, np.dtype[Any]]]:
        """The session of onnxruntime, opened on first use as it cannot be pickled, and the types of its inputs."""
        if "_open_session" not in self.__dict__:
            model = read_network(self.model_)  # refuses one that would read other files
            try:
                self._open_session = open_session(self.model_), types_of_inputs(model)
            except Exception as error:  # onnxruntime raises many kinds
                raise FileFormatError(f"onnxruntime cannot run {self.path or 'the network'}: {error}") from error
        return self._open_session

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_open_session"}

    def _run(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Compute the features of some rows; for a network with a fixed batch size the last row is repeated."""
        (session, types), others = self._session, self.inputs or {}
        (entry,) = (one for one in session.get_inputs() if one.name not in others)
        rows = as_type(self._images(batch, entry), types[entry.name], entry.name)
        step = entry.shape[0] if entry.shape and isinstance(entry.shape[0], int) else len(rows)
        found = []
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            feed = {entry.name: np.concatenate([part, np.repeat(part[-1:], step - len(part), 0)])}
            # Axes of the other inputs that have the same name as one of the rows' are as long.
            lengths = dict(zip(entry.shape, feed[entry.name].shape, strict=True))
            for one in session.get_inputs():
                if one.name != entry.name:
                    value = as_type(np.asarray(others[one.name]), types[one.name], one.name)
                    feed[one.name] = _broadcast(value, one, lengths)
            try:
                (made,) = session.run([self.output_], feed)
            except Exception as error:
                raise InvalidInputError(
                    f"the network failed on input of shape {feed[entry.name].shape} (its input {entry.name!r} is "
                    f"{entry.shape}): {error}"
                ) from error
            if np.ndim(made) < 1 or len(made) != step:
                raise InvalidInputError(
                    f"output {self.output_!r} has shape {np.shape(made)} for {step} rows; features need one row each"
                )
            found.append(made.reshape(step, -1)[: len(part)])
        return np.concatenate(found)

    def _images(self, batch: NDArray[Any], entry: Any) -> NDArray[Any]:
        """Return rows in the shape and scale that the network takes."""
        images = batch
        if self.image_shape is not None:
            if math.prod(batch.shape[1:]) != math.prod(self.image_shape_):
                raise InvalidInputError(f"X has rows of shape {batch.shape[1:]}; image_shape is {self.image_shape_}")
            images = batch.reshape(len(batch), *self.image_shape_)
        elif batch.ndim == 3 and len(entry.shape) == 4:
            images = batch[..., None]
        mean, std = np.asarray(self.mean, dtype=np.float32), np.asarray(self.std, dtype=np.float32)
        for name, values in (("mean", mean), ("std", std)):
            if values.ndim and (images.ndim != 4 or len(values) != images.shape[-1]):
                raise InvalidInputError(
                    f"{name} has {values.size} values, and images have shape {images.shape[1:]}: give a number, or one "
                    "per channel"
                )
        if mean.any() or (std != 1).any():
            images = (images.astype(np.float32, copy=False) - mean) / std
        if images.ndim == 4 and self.channels_first:
            images = images.transpose(0, 3, 1, 2)
        pairs = zip(entry.shape[1:], images.shape[1:], strict=False)
        if len(entry.shape) != images.ndim or any(isinstance(k, int) and k != n for k, n in pairs):
            raise InvalidInputError(
                f"the network takes {tuple(entry.shape)}, and X makes {('N', *images.shape[1:])}; set image_shape, "
                "channels_first, or resize the images"
            )
        return images


def _broadcast(value: NDArray[Any], entry: Any, lengths: Mapping[Any, int]) -> NDArray[Any]:
    """Return the value of an input in the shape that the network takes."""
    own = (1,) * (len(entry.shape) - value.ndim) + value.shape
    shape = [k if isinstance(k, int) else lengths.get(k, n) for k, n in zip(entry.shape, own, strict=False)]
    try:
        return np.ascontiguousarray(np.broadcast_to(value, shape)).reshape(shape)
    except ValueError as error:
        raise InvalidInputError(
            f"inputs gives {entry.name!r} the shape {value.shape}; the network takes {tuple(entry.shape)}"
        ) from error


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, str) else np.asarray(value).tolist()


def _checked(X: ArrayLike) -> Any:
    """Return tables and Dask arrays as they are, anything else as an array of numbers."""
    if is_dask(X) or is_out_of_core(X):
        return X
    return check_array(X, allow_nd=True, dtype="numeric", ensure_min_samples=1)


def _output_names(model: Any) -> list[str]:
    return [name for node in model.graph.node for name in node.output if name]


def _reduce(model: Any, name: str | None, path: StrPath, inputs: Mapping[str, Any]) -> None:
    """Reduce a network, in place, to one output and the operations that it needs; None is the network's first."""
    graph, names = model.graph, _output_names(model)
    wanted = graph.output[0].name if name is None else name
    if wanted not in names:
        close = get_close_matches(str(wanted), names, 3) or names[-5:]
        raise InvalidInputError(
            f"output is {name!r}; the network has {len(names)} outputs, inner ones included, such as "
            f"{', '.join(map(repr, close))}: OnnxFeatures.outputs(path) lists all"
        )
    reduce_to(graph, [wanted])
    weights = {tensor.name for tensor in graph.initializer}  # may be listed among the inputs
    found = [value.name for value in graph.input if value.name not in weights]
    if len(set(found).difference(inputs)) != 1 or not set(inputs) <= set(found):
        raise InvalidInputError(
            f"{path} has {len(found)} inputs ({', '.join(found) or 'none'}); X is one of them, and inputs names "
            f"{sorted(inputs)}: inputs={{name: value}} has to give the others"
        )
