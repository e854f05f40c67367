"""The models and features of this package for skl2onnx, which converts pipelines of many other steps."""

from __future__ import annotations

from typing import Any

from annealfit._support.errors import require
from annealfit.data.features.onnx_files import onnx_module
from annealfit.models.onnx_export import OWN_STEPS, graph_of


def register_skl2onnx() -> None:
    """Let `skl2onnx.to_onnx` convert the models and features of this package, as `annealfit.to_onnx` does.

    Call it once; then pipelines may have any other step that skl2onnx knows. Outputs have the precision of the input;
    probabilities are one matrix (`zipmap` is off).

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> import annealfit, onnxruntime, skl2onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(PCA(3), annealfit.QUBOSVC(random_state=0)).fit(X, y)
    >>> register_skl2onnx()
    >>> session = onnxruntime.InferenceSession(skl2onnx.to_onnx(model, X[:1]).SerializeToString())
    >>> label, scores = session.run(None, {"X": X})
    >>> bool((label == model.predict(X)).all()), bool(abs(scores - model.decision_function(X)).max() < 1e-9)
    (True, True)
    """
    skl2onnx = require("skl2onnx", extra="onnx", purpose="a converter for skl2onnx")
    for kind in OWN_STEPS:
        skl2onnx.update_registered_converter(kind, _alias(kind), _keep_types, _convert, parser=_parse)


def _alias(kind: type) -> str:
    return f"Annealfit{kind.__name__}"


def _keep_types(operator: Any) -> None:
    """The parser knows the outputs already."""


def _model(operator: Any, prefix: str = "") -> Any:
    """Return the ONNX model of an operator, of inputs as skl2onnx knows them."""
    kind = operator.inputs[0].type.to_onnx_type().tensor_type.elem_type
    return graph_of(operator.raw_operator, kind, prefix).model()


def _parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs; numbers have the type of the input."""
    types, kinds = onnx_module("skl2onnx.common.data_types"), onnx_module().TensorProto
    operator = scope.declare_local_operator(_alias(type(model)), model)
    operator.inputs.append(inputs[0])
    own = {
        kinds.INT64: types.Int64TensorType,
        kinds.STRING: types.StringTensorType,
        kinds.BOOL: types.BooleanTensorType,
    }
    for output in _model(operator).graph.output:
        shape = [None, *(size.dim_value or None for size in output.type.tensor_type.shape.dim[1:])]
        kind = own.get(output.type.tensor_type.elem_type, type(types.guess_tensor_type(inputs[0].type)))
        operator.outputs.append(scope.declare_local_variable(output.name, kind(shape)))
    return operator.outputs


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Append the nodes of the model's own graph."""
    helper, prefix = onnx_module("onnx.helper"), scope.get_unique_operator_name(operator.type) + "_"
    made = onnx_module("onnx.inliner").inline_local_functions(_model(operator, prefix))
    versions = {entry.domain: entry.version for entry in made.opset_import}
    container.initializers.extend(made.graph.initializer)
    container.add_node("Identity", [operator.inputs[0].full_name], [f"{prefix}X"], name=f"{prefix}input")
    for node in made.graph.node:
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        names, version = (list(node.input), list(node.output)), versions[node.domain]
        container.add_node(
            node.op_type, *names, op_domain=node.domain, op_version=version, name=node.name, **attributes
        )
    for output, own in zip(operator.outputs, made.graph.output, strict=True):
        kind = output.type.to_onnx_type().tensor_type.elem_type
        container.add_node("Cast", [own.name], [output.full_name], op_version=13, name=f"{own.name}_as_input", to=kind)
