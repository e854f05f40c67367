"""ONNX networks: reading and checking them, the part of one that some tensors need, and sessions that run it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, require
from annealfit._support.files import check_regular
from annealfit._support.threads import processors


def onnx_module(name: str = "onnx") -> Any:
    """Onnx or onnxruntime, imported when a network is read."""
    return require(name, extra="onnx", purpose="a network in ONNX")


def read_network(source: Any) -> Any:
    """The network in a file, in bytes, or in an `onnx.ModelProto`; what is not one, or damaged, is refused."""
    onnx, name = onnx_module(), name_of(source)
    if not isinstance(source, onnx.ModelProto | bytes | str | os.PathLike):
        raise InvalidInputError(f"{source!r} is no network: pass the path of an ONNX file, or an ONNX model")
    model = source
    if isinstance(source, str | os.PathLike):
        check_regular(source)
    with damage_named(name):
        if isinstance(source, str | os.PathLike):
            model = onnx.load(source)
        elif isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        _check(model)
    return model


def name_of(source: Any) -> str:
    """What errors call a network."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else "the network"


@contextmanager
def damage_named(name: str) -> Iterator[None]:
    """Turn the errors of reading a network into one that names its file."""
    try:
        yield
    except (PermissionError, FileFormatError, InvalidInputError):
        raise
    except Exception as error:  # protobuf's, onnx's and NumPy's have nothing in common
        reason = first_line(error) or type(error).__name__
        raise FileFormatError(f"{name}: not an ONNX network, or a damaged one ({reason}); export it again") from error


def first_line(error: Exception) -> str:
    """The first line of an error's text."""
    return str(error).strip().partition("\n")[0]


def _check(model: Any) -> None:
    """Refuse a network that nothing can run, and constants that cannot be read."""
    onnx = onnx_module()
    if not model.ir_version or not model.graph.node:
        raise ValueError("it has no operators")
    if not model.graph.output:
        raise ValueError("it has no outputs")
    if sum(one.domain in ("", "ai.onnx") for one in model.opset_import) > 1:
        raise ValueError("it names two versions of ONNX's operators")
    for node in model.graph.node:
        if not any(node.output):
            raise ValueError(f"the operator {node.op_type} {node.name!r} has no output")
    for tensor in _tensors(model.graph.node, model.graph.initializer, *(one.node for one in model.functions)):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:  # never looked for in the current folder
            raise ValueError(f"its constant {tensor.name!r} is in another file; name the network by its path")
    for tensor in model.graph.initializer:
        try:
            onnx.numpy_helper.to_array(tensor)
        except Exception as error:
            raise ValueError(f"its constant {tensor.name!r} cannot be read: {first_line(error)}") from error
    known = onnx.TensorProto.DataType.values()
    for value in model.graph.input:
        if value.type.tensor_type.elem_type not in known[1:]:
            raise ValueError(f"its input {value.name!r} is no tensor of a known type")


def _tensors(*parts: Any) -> Iterator[Any]:
    """All constants among tensors, and in the attributes of nodes and of the graphs inside these."""
    for part in (one for some in parts for one in some):
        if not hasattr(part, "attribute"):
            yield part
            continue
        for attribute in part.attribute:
            yield from (attribute.t, *attribute.tensors)
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors(graph.node, graph.initializer)


def reduce_to(graph: Any, tensors: Sequence[str]) -> None:
    """Make these tensors the outputs, and delete what they do not need: nodes, constants and inputs."""
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    outputs = [known.get(name, onnx_module().ValueInfoProto(name=name)) for name in tensors]
    graph.output.extend(outputs)
    del graph.output[: -len(outputs)]
    needed = prune(graph, tensors)
    for place in reversed(range(len(graph.input))):
        if graph.input[place].name not in needed:
            del graph.input[place]


def prune(graph: Any, tensors: Sequence[str]) -> set[str]:
    """Delete the nodes and constants that these tensors do not need; returns the names of what they need."""
    constants, needed = {tensor.name for tensor in graph.initializer}, set(tensors)
    for place in reversed(range(len(graph.node))):  # an operation follows those whose outputs it reads
        if needed.intersection(graph.node[place].output) - constants:
            needed.update(names_read(graph.node[place]))
        else:
            del graph.node[place]
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in needed:
            del graph.initializer[place]
    return needed


def names_read(node: Any) -> Iterator[str]:
    """What a node reads, what the graphs inside it (of If, Loop, Scan) read included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                yield from names_read(inner)
            yield from (value.name for value in graph.output)


def with_opset(model: Any, least: int) -> Any:
    """Return the model with an opset of at least `least`."""
    (version,) = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")] or [1]
    if version >= least:
        return model
    try:
        return onnx_module("onnx.version_converter").convert_version(model, 13)
    except Exception as error:  # the converter's have no common base
        raise InvalidInputError(
            f"the network has opset {version}, {least} is needed, and onnx cannot raise it "
            f"({first_line(error)}); export it again with a later opset"
        ) from error


def open_session(model: bytes) -> Any:
    """A session of onnxruntime that runs a network; warnings about what is left out are silenced."""
    runtime = onnx_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = processors(), 3
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def types_of_inputs(model: Any) -> dict[str, np.dtype[Any]]:
    """Return the types of a network's inputs; old files list constants among the inputs, too."""
    to_numpy = onnx_module("onnx.helper").tensor_dtype_to_np_dtype
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = (one for one in model.graph.input if one.name not in constants)
    return {one.name: np.dtype(to_numpy(one.type.tensor_type.elem_type)) for one in inputs}


def as_type(values: NDArray[Any], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Values in the type of a network's input; whole numbers are never rounded or wrapped silently."""
    with np.errstate(invalid="ignore"):
        found = np.asarray(values, dtype, order="C")
    if dtype.kind in "biu" and values.dtype != dtype and not np.array_equal(found, values):
        wrong = np.asarray(values)[found != values].flat[0]
        raise InvalidInputError(f"the network's input {name!r} is {dtype}, and is given {wrong}; give whole numbers")
    return found
