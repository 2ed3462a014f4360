"""Decode and resize the pictures of a folder by torchvision, as ci/bench_pictures.py asks.

    PYTHON ci/torchvision_loader.py FOLDER WORKERS BATCH

It runs in an interpreter with torch, torchvision and Pillow. It prints the seconds of a pass
through all pictures for each line that it reads.
"""

import contextlib
import importlib
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image

torch: Any = importlib.import_module("torch")
# A wheel for another build of torch lacks operators, which transforms of pictures don't use.
operators = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    with contextlib.suppress(RuntimeError):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
transforms: Any = importlib.import_module("torchvision.transforms")
data: Any = importlib.import_module("torch.utils.data")


class Pictures:
    """The pictures of a folder, as models of ImageNet take them."""

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.glob("*.jpg"))
        self._transform = transforms.Compose(
            [
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self._paths[index]) as image:
            return self._transform(image.convert("RGB"))


def main() -> None:
    """Time passes."""
    folder, workers, batch = sys.argv[1:]
    torch.set_num_threads(1)
    loader = data.DataLoader(
        Pictures(Path(folder)),
        batch_size=int(batch),
        num_workers=int(workers),
        persistent_workers=True,
    )
    for _ in loader:  # starts the workers
        pass
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in loader:
            pass
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
