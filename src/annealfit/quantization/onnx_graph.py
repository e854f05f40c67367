"""An ONNX network: its constants, the tensors in between, and what is run to see them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, require

_PURPOSE = "a network in ONNX"


def onnx_module(name: str = "onnx") -> Any:
    """Onnx or onnxruntime, imported when a network is read."""
    return require(name, extra="onnx", purpose=_PURPOSE)


class OnnxGraph:
    """A network whose constants are all initializers, and can be exchanged; a copy of the model it is made of.

    What only computes constants (Constant, Identity and Transpose of constants) is worked out beforehand.
    """

    def __init__(self, model: Any) -> None:
        onnx = onnx_module()
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self._fold_constants()
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}

    @classmethod
    def read(cls, source: Any) -> OnnxGraph:
        """The network in a file, in bytes, or in an `onnx.ModelProto`; what is not one is refused."""
        onnx = onnx_module()
        if isinstance(source, onnx.ModelProto):
            return cls(source)
        try:
            if isinstance(source, bytes):
                model = onnx.load_model_from_string(source)
            elif isinstance(source, str | os.PathLike):
                if Path(source).is_dir():
                    raise FileFormatError(f"{os.fspath(source)} is a folder; name an ONNX file in it")
                model = onnx.load(os.fspath(source))
            else:
                raise InvalidInputError(f"{source!r} is no network: pass the path of an ONNX file, or an ONNX model")
            if not model.ir_version or not model.graph.node:
                raise ValueError("it has no operators")
        except (FileNotFoundError, FileFormatError, InvalidInputError):
            raise
        except Exception as error:  # protobuf's, onnx's and the file system's have nothing in common
            name = "the bytes" if isinstance(source, bytes) else os.fspath(source)
            first = str(error).strip().partition("\n")[0] or type(error).__name__
            raise FileFormatError(f"{name}: not an ONNX network, or a damaged one ({first})") from error
        return cls(model)

    @property
    def graph(self) -> Any:
        """The nodes, inputs and outputs."""
        return self.model.graph

    @property
    def inputs(self) -> list[Any]:
        """What has to be fed; old files list constants among the inputs, too."""
        return [value for value in self.graph.input if value.name not in self.constants]

    def constant(self, name: str) -> NDArray[Any] | None:
        """The constant of this name, if there is one."""
        tensor = self.constants.get(name)
        return None if tensor is None else np.asarray(onnx_module().numpy_helper.to_array(tensor))

    def set_constant(self, name: str, values: NDArray[Any]) -> None:
        """Exchange a constant for one of the same shape and type."""
        self.constants[name].CopyFrom(onnx_module("onnx.numpy_helper").from_array(np.ascontiguousarray(values), name))

    def consumers(self, name: str) -> list[Any]:
        """The nodes that read a tensor."""
        return [node for node in self.graph.node if name in node.input]

    def reads(self, name: str) -> int:
        """How often a tensor is read, the network's outputs counted."""
        inside = sum(list(node.input).count(name) for node in self.graph.node)
        return inside + sum(value.name == name for value in self.graph.output)

    def part(self, outputs: Sequence[str]) -> Any:
        """The model that computes these tensors alone, and nothing that they do not need."""
        onnx = onnx_module()
        needed, nodes = set(outputs), []
        for node in reversed(self.graph.node):
            if needed.intersection(node.output):
                nodes.append(node)
                needed.update(_names_read(node))
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        graph = model.graph
        for field, kept in (
            ("node", list(reversed(nodes))),
            ("input", [value for value in self.graph.input if value.name in needed]),
            ("initializer", [tensor for name, tensor in self.constants.items() if name in needed]),
            ("output", [onnx.ValueInfoProto(name=name) for name in outputs]),
        ):
            graph.ClearField(field)
            getattr(graph, field).extend(kept)
        return model

    def _fold_constants(self) -> None:
        onnx, graph = onnx_module(), self.model.graph
        known = {tensor.name: tensor for tensor in graph.initializer}
        left = []
        for node in graph.node:
            values = _folded(node, known)
            if values is None:
                left.append(node)
            else:
                tensor = onnx.numpy_helper.from_array(values, node.output[0])
                graph.initializer.append(tensor)
                known[tensor.name] = tensor
        if len(left) < len(graph.node):
            kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in left]
            graph.ClearField("node")
            graph.node.extend(kept)
        _drop_unread_constants(graph)


def _folded(node: Any, known: Mapping[str, Any]) -> NDArray[Any] | None:
    """What a node computes from constants alone, if it is of a simple kind."""
    helper = onnx_module().numpy_helper
    attributes = attributes_of(node)
    if node.op_type == "Constant" and "value" in attributes:
        return np.asarray(helper.to_array(attributes["value"]))
    if node.op_type not in ("Identity", "Transpose") or any(name not in known for name in node.input):
        return None
    values = np.asarray(helper.to_array(known[node.input[0]]))
    return np.transpose(values, attributes.get("perm")) if node.op_type == "Transpose" else values


def _drop_unread_constants(graph: Any) -> None:
    read = {name for node in graph.node for name in _names_read(node)} | {value.name for value in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) < len(graph.initializer):
        copies = [type(tensor).FromString(tensor.SerializeToString()) for tensor in kept]
        graph.ClearField("initializer")
        graph.initializer.extend(copies)


def _names_read(node: Any) -> Iterable[str]:
    """What a node reads, what the graphs inside it (of If, Loop, Scan) read included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                yield from _names_read(inner)
            yield from (value.name for value in graph.output)


def attributes_of(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    helper = onnx_module("onnx.helper")
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


class GraphRun:
    """Computes some tensors of a network for batches of its inputs."""

    def __init__(self, network: OnnxGraph, tensors: Sequence[str]) -> None:
        fed = {value.name for value in network.inputs}
        self._computed: list[str] = [name for name in dict.fromkeys(tensors) if name not in fed]
        self._tensors, self._session = list(tensors), None
        if not self._computed:
            return
        runtime = onnx_module("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # warnings are about what is left out, which is on purpose
        try:
            self._session = runtime.InferenceSession(
                network.part(self._computed).SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the runtime's errors have no common base but this
            raise InvalidInputError(f"onnxruntime cannot run the network: {_first_line(error)}") from error
        self._read: Collection[str] = {value.name for value in self._session.get_inputs()}

    def __call__(self, feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The tensors, in the order they were asked for."""
        found = dict(feed)
        if self._session is not None:
            try:
                own = {name: values for name, values in feed.items() if name in self._read}
                found.update(zip(self._computed, self._session.run(self._computed, own), strict=True))
            except Exception as error:
                raise InvalidInputError(f"onnxruntime cannot run the network: {_first_line(error)}") from error
        return [np.asarray(found[name]) for name in self._tensors]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
