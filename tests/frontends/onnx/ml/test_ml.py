"""Operators of ai.onnx.ml through compiled code, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.frontends.onnx.onnx_models import floats, ints

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
X = floats(6, 3, seed=2)
W = [float(v) for v in np.array([0.5, -1, 2, 1, 0.25, -0.5, -2, 1.5, 0.75], np.float32)]


def coefficients(count: int) -> list[float]:
    return [float(v) for v in floats(count, seed=count)]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(targets: int, transform: str) -> None:
    model, feeds = ml_model(
        "LinearRegressor", [X], symbolic=True, coefficients=W[: 3 * targets],
        intercepts=[0.1, -0.2, 0.3][:targets], targets=targets, post_transform=transform,
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_classifier(classes: int, transform: str) -> None:
    model, feeds = ml_model(
        "LinearClassifier", [X], outputs=2, coefficients=W[: 3 * classes],
        intercepts=[0.1, -0.2, 0.3][:classes], classlabels_ints=[4, 5, 6][: max(2, classes)],
        post_transform=transform,
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


KERNELS: tuple[dict[str, Any], ...] = (
    {"kernel_type": "LINEAR", "kernel_params": [0.5, 0.0, 3.0]},
    {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0]},
    {"kernel_type": "POLY", "kernel_params": [0.25, 4.0, 2.0]},
    {"kernel_type": "SIGMOID", "kernel_params": [0.25, 0.5, 3.0]},
)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k["kernel_type"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: dict[str, Any], one_class: int) -> None:
    model, feeds = ml_model(
        "SVMRegressor", [X], coefficients=coefficients(4), support_vectors=coefficients(12),
        n_supports=4, rho=[0.25], one_class=one_class, **kernel,
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


def test_radial_kernel_of_vectors_far_from_zero() -> None:
    far = np.float32(1000) * np.array([1, -1, 1], np.float32)
    vectors = far * np.array([[1, 1, -1, -1]], "f").T + np.reshape(floats(12, seed=12), (4, 3))
    model, feeds = ml_model(
        "SVMRegressor", [X + far * np.array([[1, -1] * 3], "f").T], coefficients=coefficients(4),
        support_vectors=vectors.ravel(), n_supports=4, rho=[0.25], **KERNELS[1],
    )  # fmt: skip
    assert KERNELS[1]["kernel_type"] == "RBF"
    assert_compiled_agrees(model, feeds)


def test_svm_regressor_without_vectors() -> None:
    model, feeds = ml_model("SVMRegressor", [X], coefficients=W[:3], rho=[0.5], **KERNELS[0])
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k["kernel_type"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("counts", [(3, 2), (2, 3, 2)])
def test_svm_classifier(kernel: dict[str, Any], counts: tuple[int, ...], transform: str) -> None:
    classes, total = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    model, feeds = ml_model(
        "SVMClassifier", [X], outputs=2, coefficients=coefficients(total * (classes - 1)),
        support_vectors=coefficients(3 * total), vectors_per_class=counts,
        rho=coefficients(pairs), classlabels_ints=[3, 5, 7][:classes],
        post_transform=transform, **kernel,
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize("counts", [(3, 2), (2, 3, 2), (2, 1, 2, 2)])
def test_svm_classifier_with_probabilities(counts: tuple[int, ...]) -> None:
    classes, total = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    model, feeds = ml_model(
        "SVMClassifier", [X], outputs=2, coefficients=coefficients(total * (classes - 1)),
        support_vectors=coefficients(3 * total), vectors_per_class=counts,
        rho=coefficients(pairs), prob_a=[-1.5, -0.5, -1.0, -2.0, -1.2, -0.7][:pairs],
        prob_b=coefficients(pairs), classlabels_ints=[3, 5, 7, 9][:classes], **KERNELS[1],
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize("classes", [3, 5, 8])
def test_rows_are_coupled_as_if_each_were_alone(classes: int) -> None:
    """One takes many rounds, others end early, and one holds a NaN."""
    rng = np.random.default_rng(classes)
    x = rng.normal(0, 3, (40, 3)).astype(np.float32)
    x[7, 1] = np.nan
    pairs = classes * (classes - 1) // 2
    model, feeds = ml_model(
        "SVMClassifier", [x], outputs=2, coefficients=rng.normal(0, 2, 2 * classes * (classes - 1)),
        support_vectors=rng.normal(0, 1, 6 * classes), vectors_per_class=[2] * classes,
        rho=rng.normal(0, 1, pairs), prob_a=-rng.uniform(0.2, 4, pairs),
        prob_b=rng.normal(0, 1, pairs), classlabels_ints=list(range(classes)), **KERNELS[1],
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


def test_svm_classifier_by_coefficients() -> None:
    model, feeds = ml_model(
        "SVMClassifier", [X], outputs=2, coefficients=W, rho=[0.5], classlabels_ints=[3, 5, 7],
        post_transform="SOFTMAX", **KERNELS[0],
    )  # fmt: skip
    assert_compiled_agrees(model, feeds)


def _with_zeros() -> np.ndarray[Any, Any]:
    x = X.copy()
    x[1] = 0
    return x


SIMPLE: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("Scaler", [X], {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 2.0, 4.0]}),
    ("Scaler", [X], {"offset": [1.0], "scale": [0.5]}),
    ("Scaler", [ints(4, 3)], {"offset": [1.0], "scale": [0.5]}),
    ("Binarizer", [X], {"threshold": 0.25}),
    ("Normalizer", [_with_zeros()], {"norm": "MAX"}),
    ("Normalizer", [_with_zeros()], {"norm": "L1"}),
    ("Normalizer", [_with_zeros()], {"norm": "L2"}),
    ("Imputer", [_with_zeros()], {"imputed_value_floats": [1.0, 2.0, 3.0]}),
    (
        "Imputer",
        [np.array([[np.nan, 1, np.nan]], np.float32)],
        {"imputed_value_floats": [7.0], "replaced_value_float": float("nan")},
    ),
    ("Imputer", [ints(4, 3)], {"imputed_value_int64s": [9, 8, 7], "replaced_value_int64": -1}),
    ("OneHotEncoder", [ints(4, 2)], {"cats_int64s": [-2, 0, 3]}),
    ("FeatureVectorizer", [X, floats(6, 2)], {"inputdimensions": [3, 2]}),
    ("ArrayFeatureExtractor", [X, np.array([2, 0])], {}),
    ("ArrayFeatureExtractor", [X[0], np.array([[2, 0, 1]])], {}),
)


@pytest.mark.parametrize(("op", "operands", "attributes"), SIMPLE, ids=lambda v: str(v)[:24])
def test_features(op: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    model, feeds = ml_model(op, operands, **attributes)
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize(
    ("x", "attributes"),
    [
        (ints(5, 2), {"keys_int64s": [0, 2, -3], "values_floats": [1.5, 2.5, 3.5]}),
        (ints(5, 2), {"keys_int64s": [0, 2], "values_int64s": [7, 8], "default_int64": 5}),
        (
            np.array([1.5, np.nan, 2, 3], np.float32),
            {"keys_floats": [1.5, float("nan"), 3.0], "values_floats": [1.0, 2.0, 3.0]},
        ),
    ],
)
def test_label_encoder(x: Any, attributes: dict[str, Any]) -> None:
    model, feeds = ml_model("LabelEncoder", [x], opset=4, **attributes)
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [7, 3, 5]}, {"classlabels_strings": ["a", "b", "c"]}]
)
def test_zip_map(labels: dict[str, Any]) -> None:
    model, feeds = ml_model("ZipMap", [X], symbolic=True, **labels)
    assert_compiled_agrees(model, feeds)
