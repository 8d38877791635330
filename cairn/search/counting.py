"""The compiled inner loops of exact search: widening, counting against judged scores, keeping the best.

They release the interpreter's lock, so that one thread counts while another multiplies. A judged image of a query
is a level here. Levels are ordered from worst to best: by rising score, then falling manifest row. The image with
score s stands above exactly the first n levels; how many images have each n is all that ranks need. Most images
get n without a search: the axis of scores is cut into bins by a monotone function of the score, and in a bin
without a level n is the same for all. Only in the others the image is compared with the bin's levels.
"""

import numpy as np

from cairn.tail.compiled import compiled

LEAST_BINS, MOST_BINS, BINS_PER_LEVEL = 64, 2048, 8


@compiled(nogil=True)
def widen(half, single):
    """Write the float16 numbers with bits `half` (uint16 [n]) to `single` (uint32 [n], bits of float32), exactly.

    Returns whether all are finite. Exponent and fraction keep their order when shifted to where float32 has
    them; the difference of the exponents' biases is a factor of 2^112, exact also for subnormal numbers.
    """
    largest = np.uint32(0)
    for begin in range(0, half.size, 1024):  # three simple loops over what stays in the first cache
        largest = max(largest, _widen(half[begin : begin + 1024], single[begin : begin + 1024]))
    return largest < np.uint32(0x7C00)


@compiled(nogil=True)
def _widen(half, single):
    floats = single.view(np.float32)
    factor = np.float32(2.0**112)
    largest = np.uint32(0)
    for i in range(half.size):
        bits = np.uint32(half[i]) & np.uint32(0x7FFF)
        largest = max(largest, bits)
        single[i] = bits << np.uint32(13)
    for i in range(half.size):
        floats[i] *= factor
    for i in range(half.size):
        single[i] |= (np.uint32(half[i]) & np.uint32(0x8000)) << np.uint32(16)
    return largest


@compiled(nogil=True)
def all_finite(bits):
    """Whether the float32 numbers with these bits (uint32 [n]) are all finite."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & np.uint32(0x7FFFFFFF))
    return largest < np.uint32(0x7F800000)


@compiled(nogil=True)
def bin_of(score, low, scale, last):
    """Bin of a score, from 0 to `last`: never falling with the score; the levels are in bins 1 to `last` - 1."""
    place = (score - low) * scale + np.float32(1)
    return np.int64(min(max(place, np.float32(0)), np.float32(last)))


@compiled(nogil=True)
def fill_bins(start, scores, bin_start, low, scale, before, occupied):
    """Write, for each query's bins, `before` (levels in lower bins) and `occupied` (whether a level is in it)."""
    for query in range(len(low)):
        first, last = bin_start[query], bin_start[query + 1] - 1
        level = start[query]
        for place in range(last - first + 1):
            before[first + place] = level - start[query]
            while level < start[query + 1] and place == bin_of(
                scores[level], low[query], scale[query], last - first
            ):
                occupied[first + place] = True
                level += 1


@compiled(nogil=True)
def turn(products, lines):
    """Write the transpose of `products` (float32 [images, queries]) to `lines` ([queries, >= images])."""
    for image in range(products.shape[0]):
        line = products[image]
        for query in range(products.shape[1]):
            lines[query, image] = line[query]


@compiled(nogil=True)
def gather(lines, begin, start, pair_query, pair_row, seen):
    """Write to `seen` the scores (float32 [queries, images]) of the pairs whose query is in this block."""
    for pair in range(len(pair_query)):
        query = pair_query[pair] - begin
        if 0 <= query < lines.shape[0]:
            seen[pair] = lines[query, pair_row[pair] - start]


@compiled(nogil=True)
def count(lines, begin, images, queries, levels, bins, counted, above):
    """Add one tile's images to the counts of its queries.

    `lines` float32 [>= queries, >= images]: scores; query q of this block is query `begin` + q of the tuples.
    `images` int32 [images]: manifest rows. `levels` (start, scores, rows), `bins` (start, low, scale, before,
    occupied). `counted` [bins] += images in each bin; `above` [levels + queries] += images above so many
    levels, for images in occupied bins.
    """
    start, scores, rows = levels
    bin_start, low, scale, before, occupied = bins
    places = np.empty(len(images), np.uint16)
    close = np.empty(len(images) + 1, np.uint16)
    for column in range(queries):
        query = begin + column
        level_start, level_end = start[query], start[query + 1]
        if level_start == level_end:
            continue
        first, last = bin_start[query], bin_start[query + 1] - 1
        line = lines[column, : len(images)]
        _bins_of(line, low[query], scale[query], last - first, places)
        number = _count_bins(places, counted[first : last + 1], occupied[first : last + 1], close)
        for image in close[:number]:
            score, row, place = line[image], images[image], first + np.int64(places[image])
            least = level_start + before[place]
            most = level_start + before[place + 1] if place < last else level_end
            while least < most:
                middle = (least + most) >> 1
                if scores[middle] < score or (scores[middle] == score and rows[middle] > row):
                    least = middle + 1
                else:
                    most = middle
            above[least + query] += 1


@compiled(nogil=True)
def _bins_of(line, low, scale, last, places):
    """`bin_of` of every score, in a loop that vectorises."""
    highest = np.float32(last)
    for image in range(len(places)):
        place = (line[image] - low) * scale + np.float32(1)
        places[image] = np.uint16(np.int32(min(max(place, np.float32(0)), highest)))


@compiled(nogil=True)
def _count_bins(places, counted, occupied, close):
    """Count images per bin; list in `close` those in occupied bins, without a branch; returns their number."""
    number = np.uint64(0)  # unsigned indices spare the test for negative ones
    for image in range(len(places)):
        place = places[image]
        counted[place] += np.uint32(1)
        close[number] = image
        number += np.uint64(occupied[place])
    return np.int64(number)


@compiled(nogil=True)
def ranks(start, bins, counted, above):
    """Images before each level: int64 [levels]; `counted` and `above` as `count` left them."""
    bin_start, _, _, before, occupied = bins
    found = np.zeros(start[-1], np.int64)
    for query in range(len(start) - 1):
        first, number = start[query] + query, start[query + 1] - start[query]
        if not number:
            continue
        total = above[first : first + number + 1].copy()
        for place in range(bin_start[query], bin_start[query + 1]):
            if not occupied[place]:
                total[before[place]] += counted[place]
        better = 0
        for level in range(number - 1, -1, -1):
            better += total[level + 1]
            found[start[query] + level] = better
    return found


@compiled(nogil=True)
def keep(lines, begin, images, queries, top, kept, kept_scores, kept_rows, least):
    """Add one tile's images to the best `top` >= 1 of its queries.

    `kept_scores`, `kept_rows` [all queries, more than top]: the best so far and some more, `kept` [queries] of
    them; `least` [queries]: what a score must have to be among them. Other arguments as in `count`.
    """
    room = kept_scores.shape[1]
    good = np.empty(len(images) + 1, np.uint16)
    for column in range(queries):
        query = begin + column
        line = lines[column, : len(images)]
        threshold, number, found = least[query], kept[query], np.uint64(0)
        for image in range(len(images)):
            good[found] = image
            found += np.uint64(line[image] >= threshold)
        for image in good[: np.int64(found)]:
            kept_scores[query, number] = line[image]
            kept_rows[query, number] = images[image]
            number += 1
            if number == room:
                threshold = _best_first(kept_scores[query], kept_rows[query], top)
                number = top
        kept[query], least[query] = number, threshold


@compiled(nogil=True)
def _best_first(scores, rows, top):
    """Move the best `top` (by score, then lower row) to the front, in any order; returns the last one's score."""
    last = np.partition(scores, len(scores) - top)[len(scores) - top]
    better = 0
    for i in range(len(scores)):
        if scores[i] > last:
            scores[i], scores[better] = scores[better], scores[i]
            rows[i], rows[better] = rows[better], rows[i]
            better += 1
    tied = np.flatnonzero(scores[better:] == last) + better
    wanted = top - better
    highest = np.partition(rows[tied], wanted - 1)[wanted - 1]
    for i in tied:  # ascending, so that nothing is overwritten before it is read
        if rows[i] <= highest:
            scores[better], rows[better] = scores[i], rows[i]
            better += 1
    return last
