"""`kernelmill bench` calls each `benchmark_*` many times and compares with its `verify_*`."""

import img2gray
import torch


class Benchmark:
    seed = 1

    def setup(self):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.image = torch.randint(0, 256, (1080, 1920, 3), dtype=torch.uint8, device=device)

    def benchmark_full_hd(self):
        self.out = img2gray.img2gray(self.image)

    def verify_full_hd(self):
        wide = self.image.to(torch.int32)
        return ((77 * wide[..., 0] + 150 * wide[..., 1] + 29 * wide[..., 2] + 128) >> 8).to(
            torch.uint8
        )
