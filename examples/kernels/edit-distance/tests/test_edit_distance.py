import random
from functools import cache

import edit_distance
import pytest
import torch


def reference(a, b):
    @cache
    def distance(i, j):
        if min(i, j) == 0:
            return i + j
        replaced = distance(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(replaced, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(a), len(b))


def test_words():
    a = [b"kitten", b"", b"flaw", b"same", b"abc"]
    b = [b"sitting", b"abc", b"lawn", b"same", b""]
    assert edit_distance.edit_distances(a, b).tolist() == [3, 3, 2, 0, 3]


def test_random_strings():
    draw = random.Random(1)
    pairs = [
        [bytes(draw.choices(b"abc", k=draw.randrange(20))) for _ in range(50)] for _ in range(2)
    ]
    assert edit_distance.edit_distances(*pairs).tolist() == [
        reference(a, b) for a, b in zip(*pairs, strict=True)
    ]


def test_nothing():
    assert edit_distance.edit_distances([], []).shape == (0,)
    with pytest.raises(ValueError, match="takes pairs: 1 strings and 0"):
        edit_distance.edit_distances([b"a"], [])


def test_a_length_beyond_its_string():
    text, lengths = edit_distance.pack([b"abc"])
    with pytest.raises(RuntimeError, match="length 0 is beyond its string"):
        edit_distance._ops.ops.edit_distances(
            torch.empty(1, dtype=torch.int32), text, lengths + 1, text, lengths
        )
