# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""One rank of a launch: ``horovodrun -np 4 python -m examples.digits.worker PLAN``.

`launch` writes the plan. This module only prepares the environment, which must happen before
TensorFlow is imported; the training itself is in `training`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if plan["legacy_keras"]:
        # Here and not in the launcher's environment: horovodrun itself trips over it.
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    else:
        os.environ.pop("TF_USE_LEGACY_KERAS", None)

    from examples.digits import training

    training.train_all(plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
