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

from annealfit._support.errors import FileFormatError, InvalidInputError, check_number
from annealfit._support.files import StrPath
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.data.convolution import with_channels
from annealfit.data.features.onnx_files import as_type, open_session, prune, read_network
from annealfit.data.features.scaling import map_dask_rows
from annealfit.data.rows import is_dask, is_out_of_core

_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{f"tensor({name})": name for name in ("float16", "bool", "int8", "int16", "int32", "int64")},
    **{f"tensor({name})": name for name in ("uint8", "uint16", "uint32", "uint64")},
}


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
        check_number("batch_size", self.batch_size, Integral, minimum=1)
        if not np.all(np.asarray(self.std, dtype=float) > 0):
            raise InvalidInputError(f"std is {self.std!r}; it must hold numbers above 0")
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
        settings = {name: value for name, value in self.get_params().items() if name != "path"}
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in settings.items()}
        plain["inputs"] = {name: np.asarray(value).tolist() for name, value in (self.inputs or {}).items()} or None
        manifest = {
            "kind": "onnx",
            "settings": plain,
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
        given = document["settings"]
        shape, output, inputs = given.get("image_shape"), given.get("output"), given.get("inputs")
        sizes = None if shape is None else [size.whole(minimum=1, maximum=2**20) for size in shape.items(3)]
        with settings_of(given):
            features = cls(
                "",
                None if output is None else output.text(),
                batch_size=given["batch_size"].whole(minimum=1),
                image_shape=None if sizes is None else with_channels(sizes),
                channels_first=given["channels_first"].flag(),
                mean=_numbers(given["mean"]),
                std=_numbers(given["std"]),
                inputs=None if inputs is None else {name: _array(value) for name, value in inputs.entries().items()},
            )
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
    def _session(self) -> Any:
        """The session of onnxruntime, opened on first use: it can be neither copied nor pickled."""
        if "_open_session" not in self.__dict__:
            read_network(self.model_)  # refuses one that would read other files
            try:
                self._open_session = open_session(self.model_)
            except Exception as error:  # onnxruntime raises many kinds
                raise FileFormatError(f"onnxruntime cannot run {self.path or 'the network'}: {error}") from error
        return self._open_session

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_open_session"}

    def _run(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Compute the features of some rows; for a network with a fixed batch size the last row is repeated."""
        others = self.inputs or {}
        (entry,) = (one for one in self._session.get_inputs() if one.name not in others)
        inputs = self._inputs(batch, entry)
        fixed = entry.shape[0] if entry.shape and isinstance(entry.shape[0], int) else None
        step = fixed or len(inputs)
        found = []
        for first in range(0, len(inputs), step):
            part = inputs[first : first + step]
            padded = part if len(part) == step else np.concatenate([part, np.repeat(part[-1:], step - len(part), 0)])
            try:
                (made,) = self._session.run([self.output_], {entry.name: padded} | self._others(entry, padded))
            except InvalidInputError:
                raise
            except Exception as error:
                raise InvalidInputError(
                    f"the network failed on input of shape {padded.shape} (its input {entry.name!r} is {entry.shape}): "
                    f"{error}"
                ) from error
            if np.ndim(made) < 1 or len(made) != step:
                raise InvalidInputError(
                    f"output {self.output_!r} has shape {np.shape(made)} for {step} rows; features need one row each"
                )
            found.append(made.reshape(step, -1)[: len(part)])
        return np.concatenate(found)

    def _others(self, entry: Any, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The other inputs for these rows; axes that have the same name as one of the rows' are as long."""
        lengths = {name: size for name, size in zip(entry.shape, rows.shape, strict=False) if isinstance(name, str)}
        found = {}
        for one in self._session.get_inputs():
            if one.name == entry.name:
                continue
            value = as_type(np.asarray(self.inputs[one.name]), np.dtype(_type_of(one)), one.name)  # type: ignore[index]
            own = (1,) * (len(one.shape) - value.ndim) + value.shape
            shape = [k if isinstance(k, int) else lengths.get(k, v) for k, v in zip(one.shape, own, strict=False)]
            try:
                found[one.name] = np.ascontiguousarray(np.broadcast_to(value, shape)).reshape(shape)
            except ValueError as error:
                raise InvalidInputError(
                    f"inputs gives {one.name!r} the shape {value.shape}; the network takes {tuple(one.shape)}"
                ) from error
        return found

    def _inputs(self, batch: NDArray[Any], entry: Any) -> NDArray[Any]:
        """Return rows in the shape, scale and type that the network takes."""
        images = batch
        if self.image_shape is not None:
            if math.prod(batch.shape[1:]) != math.prod(self.image_shape_):
                raise InvalidInputError(f"X has rows of shape {batch.shape[1:]}; image_shape is {self.image_shape_}")
            images = batch.reshape(len(batch), *self.image_shape_)
        elif batch.ndim == 3 and len(entry.shape) == 4:
            images = batch[..., None]
        images = _normalised(images, self.mean, self.std)
        if images.ndim == 4 and self.channels_first:
            images = images.transpose(0, 3, 1, 2)
        ready = as_type(images, np.dtype(_type_of(entry)), entry.name)
        wanted = [size if isinstance(size, int) else None for size in entry.shape[1:]]
        pairs = zip(wanted, ready.shape[1:], strict=False)
        if len(wanted) != ready.ndim - 1 or any(size not in (None, own) for size, own in pairs):
            raise InvalidInputError(
                f"the network takes {tuple(entry.shape)}, and X makes {('N', *ready.shape[1:])}; set image_shape, "
                "channels_first, or resize the images"
            )
        return ready


def _normalised(images: NDArray[Any], mean: Any, std: Any) -> NDArray[Any]:
    """Return `(x − mean)/std` by channel, the last dimension."""
    centre, spread = np.asarray(mean, dtype=np.float32), np.asarray(std, dtype=np.float32)
    if not centre.any() and (spread == 1).all():
        return images
    for name, values in (("mean", centre), ("std", spread)):
        if values.ndim and (images.ndim != 4 or len(values) != images.shape[-1]):
            raise InvalidInputError(
                f"{name} has {values.size} values, and images have shape {images.shape[1:]}: give a number, or one "
                "per channel"
            )
    return (images.astype(np.float32, copy=False) - centre) / spread


def _type_of(entry: Any) -> str:
    if entry.type not in _TYPES:
        raise InvalidInputError(
            f"the network's input {entry.name!r} is a {entry.type}; expected one of {', '.join(_TYPES)}"
        )
    return _TYPES[entry.type]


def _array(stored: Field) -> NDArray[Any]:
    try:
        return np.asarray(stored.value, dtype=float)
    except (TypeError, ValueError):
        stored.refuse("numbers")


def _numbers(stored: Field) -> float | list[float]:
    return [one.number() for one in stored.items()] if isinstance(stored.value, list) else stored.number()


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
    output = next((value for value in (*graph.output, *graph.value_info) if value.name == wanted), None)
    needed = prune(graph, [wanted])
    graph.output.insert(0, output or type(graph.output[0])(name=wanted))
    del graph.output[1:]
    for place in reversed(range(len(graph.input))):
        if graph.input[place].name not in needed:
            del graph.input[place]
    weights = {tensor.name for tensor in graph.initializer}  # may be listed among the inputs
    found = [value.name for value in graph.input if value.name not in weights]
    if unknown := sorted(set(inputs).difference(found)):
        raise InvalidInputError(f"inputs names {unknown}; {name or 'the output'} of {path} needs {found}")
    if len(found) != len(inputs) + 1:
        raise InvalidInputError(
            f"{path} has {len(found)} inputs ({', '.join(found) or 'none'}); X is one of them, and "
            "inputs={name: value} gives the others"
        )
