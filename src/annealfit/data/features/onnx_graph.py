"""ONNX networks as files and graphs: what they hold, and the part that an inner output needs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from annealfit._support.errors import FileFormatError, InvalidInputError, require
from annealfit._support.files import StrPath

_PURPOSE = "running ONNX networks"


def read_network(path: StrPath) -> Any:
    """The model in a file; anything else is refused."""
    onnx = require("onnx", extra="onnx", purpose=_PURPOSE)
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}; give the path of an ONNX network")
    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf's own, which is not public
        raise FileFormatError(f"{path} is not an ONNX network: {error}; export it again") from error
    if not model.graph.node:
        raise FileFormatError(f"{path} is not an ONNX network, or one without any operation; export it again")
    return model


def output_names(model: Any) -> list[str]:
    """What every operation gives, in their order; the network's own outputs are among them."""
    return [name for node in model.graph.node for name in node.output if name]


def with_output(model: Any, name: str | None) -> Any:
    """The network with one output, by name, and only the operations that it needs; None is its own first."""
    onnx = require("onnx", extra="onnx", purpose=_PURPOSE)
    names = output_names(model)
    wanted = model.graph.output[0].name if name is None else name
    if wanted not in names:
        close = get_close_matches(str(wanted), names, 3) or names[-5:]
        raise InvalidInputError(
            f"output is {name!r}; the network has {len(names)} outputs, inner ones included, such as "
            f"{', '.join(map(repr, close))}: OnnxFeatures.outputs(path) lists all"
        )
    known = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    needed = _needed(made.graph, wanted)
    graph = made.graph
    kept = [node for node in graph.node if needed.intersection(node.output)]
    del graph.node[:], graph.output[:]
    graph.node.extend(kept)
    graph.output.append(known.get(wanted) or onnx.helper.make_empty_tensor_value_info(wanted))
    for part in (graph.initializer, graph.input):
        used = [entry for entry in part if entry.name in needed]
        del part[:]
        part.extend(used)
    return made


def only_input(model: Any, path: StrPath) -> Any:
    """The one input of a network; weights may be listed among the inputs, and are none."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise InvalidInputError(f"{path} has {len(inputs)} inputs ({names}); features come from one, the images")
    return inputs[0]


def _needed(graph: Any, wanted: str) -> set[str]:
    """Names of everything that a value depends on, itself included."""
    makers = {name: node for node in graph.node for name in node.output}
    found: set[str] = set()
    open_names = [wanted]
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        found.add(name)
        if name in makers:
            open_names += _used_by(makers[name])
    return found


def _used_by(node: Any) -> Iterator[str]:
    """Names that an operation reads, also in the branches and loops inside it."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                yield from _used_by(inner)
            yield from (value.name for value in graph.output)
