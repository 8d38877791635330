"""Which shard an image's descriptor lies in: a function of its id and of how many images there are.

Linear hashing (Litwin, VLDB 1980): the number of shards grows one at a time, and one more shard takes half of
exactly one other. So a new image touches its own shard, and once in a while the shard that is split.
"""

import hashlib
from collections.abc import Sequence

IMAGES_PER_SHARD = 16_384
"""Two row groups: what a crash may cost (minutes of a GPU), and one more image to extract again."""

SMALL_SHARD, SMALL_COUNT = 256, 16
"""Small collections get up to 16 shards of at least 256 images, so that they profit as well."""


def shard_count(images: int) -> int:
    """Number of shards for so many images: at least 1, never falling, growing by at most 1 per image."""
    return max(1, min(SMALL_COUNT, images // SMALL_SHARD), -(-images // IMAGES_PER_SHARD))


def shard_of(image_id: str, count: int) -> int:
    """The shard, from 0 to count - 1, of an image among `count` shards."""
    number = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big")
    doubled = 1 << (count - 1).bit_length()
    shard = number % doubled
    # Shards from `count` on do not exist yet: their images are still in the one they will be split from.
    return shard if shard < count else shard - doubled // 2


def assign_shards(image_ids: Sequence[str]) -> list[list[int]]:
    """Positions in `image_ids` of the images of each shard, in their order there; a list may be empty."""
    shards: list[list[int]] = [[] for _ in range(shard_count(len(image_ids)))]
    for position, image_id in enumerate(image_ids):
        shards[shard_of(image_id, len(shards))].append(position)
    return shards


def shard_name(shard: int) -> str:
    """File name of a shard: `0007.parquet`."""
    return f"{shard:04d}.parquet"
