"""Load the build for this machine and call it once: `python sanity.py` after `kernelmill build`."""

import torch

from kernelmill import hub

kernel = hub.get_local_kernel(".")
image = torch.tensor([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], dtype=torch.uint8)
assert kernel.img2gray(image).tolist() == [[77, 149, 29, 255]]
print(f"{kernel.__name__} works")
