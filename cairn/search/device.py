"""A pass of exact search on a torch device (CUDA): the same plan and counts as on the CPU, in larger tiles.

Products are float32 with float32 accumulation (no TF32), all of one shape. Levels are counted by binary search;
the few images that tie with a level are settled by manifest row on the CPU.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ParameterError
from cairn.search.scanning import Answers, Part, Questions, first, room
from cairn.search.tiles import QUERY_BLOCK, NotFiniteError, Tile, tile_rows, tiles

if TYPE_CHECKING:
    import torch

TILES = 32
"""Tiles of the CPU's plan in one of a device: enough work for each of its kernels."""


def device_tile_rows(dim: int) -> int:
    """Images in a tile on a device."""
    return TILES * tile_rows(dim)


def checked_device(name: str) -> "torch.device":
    """The torch device `name`. ParameterError where there is none, or torch does not see it."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ParameterError(f"device {name!r}: torch cannot compute there ({reason}); use cpu") from None
    return device


def multiply_on(name: str) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    """`cairn.search.products.multiply` on a device."""
    import torch

    device = checked_device(name)

    def multiply(images: np.ndarray, block: np.ndarray, products: np.ndarray) -> None:
        on = torch.from_numpy(images).to(device), torch.from_numpy(block).to(device)
        products[:] = _product(*on).cpu().numpy()

    return multiply


def scan_on_device(questions: Questions, part: Part) -> Answers:
    """The answers of one part. NotFiniteError for a score that is infinite or not a number."""
    import torch

    device = checked_device(questions.device)
    pass_ = _Pass(questions, part, device)
    with torch.inference_mode():
        for tile in tiles(part.rows.blocks(), device_tile_rows(part.rows.dim)):
            pass_.add(tile)
    return pass_.answers()


class _Pass:
    def __init__(self, questions: Questions, part: Part, device: "torch.device") -> None:
        import torch

        self.questions, self.part, self.device = questions, part, device
        self.images = torch.zeros((device_tile_rows(part.rows.dim), part.rows.dim), device=device)
        self.blocks = [torch.from_numpy(block).to(device) for block in questions.blocks]
        start, scores, _ = questions.levels.levels
        most = int(np.diff(start).max(initial=0))
        # Each query's levels, rising, filled up with infinity: no score stands above those.
        padded = np.full((len(self.blocks) * QUERY_BLOCK, max(1, most)), np.inf, np.float32)
        for query in range(questions.count):
            padded[query, : start[query + 1] - start[query]] = scores[start[query] : start[query + 1]]
        self.levels = torch.from_numpy(padded).to(device)
        self.above = np.zeros(len(questions.levels.pairs) + questions.count, np.int64)
        self.pair_scores = np.zeros(len(part.pair_row), np.float32)
        self.scores: list[list[np.ndarray]] = [[np.zeros(0, np.float32)] for _ in range(questions.count)]
        self.rows: list[list[np.ndarray]] = [[np.zeros(0, np.int32)] for _ in range(questions.count)]
        self.held = np.zeros(questions.count, np.int64)
        self.least = torch.full((questions.count,), -torch.inf, device=device)

    def add(self, tile: Tile) -> None:
        import torch

        start = self.part.start + tile.start
        self._fill(tile, start)
        rows = self.part.manifest_rows[tile.start : tile.start + tile.count]
        here = slice(*np.searchsorted(self.part.pair_row, (start, start + tile.count)))
        for number, block in enumerate(self.blocks):
            begin = number * QUERY_BLOCK
            queries = min(QUERY_BLOCK, self.questions.count - begin)
            lines = _product(self.images, block).T[:queries, : tile.count].contiguous()
            if not bool(torch.isfinite(lines).all()):
                query, image = torch.nonzero(~torch.isfinite(lines.T))[0].tolist()[::-1]
                raise NotFiniteError(begin + query, start + image)
            self._gather(lines, begin, start, here)
            self._count(lines, begin, rows)
            if self.questions.top:
                self._keep(lines, begin, rows)

    def _fill(self, tile: Tile, start: int) -> None:
        import torch

        place = 0
        for piece in tile.pieces:
            # A copy, since torch takes no read-only memory; float16 crosses to the device as it is.
            self.images[place : place + len(piece)] = torch.from_numpy(piece.copy()).to(self.device)
            place += len(piece)
        self.images[place:] = 0
        if not bool(torch.isfinite(self.images).all()):
            bad = torch.nonzero(~torch.isfinite(self.images).all(dim=1))[0].item()
            raise NotFiniteError(None, start + int(bad))

    def _gather(self, lines: "torch.Tensor", begin: int, start: int, here: slice) -> None:
        import torch

        query, row = self.part.pair_query[here] - begin, self.part.pair_row[here] - start
        mine = np.flatnonzero((query >= 0) & (query < len(lines)))
        if len(mine):
            index = [torch.from_numpy(each[mine]).to(self.device) for each in (query, row)]
            self.pair_scores[here][mine] = lines[index[0], index[1]].cpu().numpy()

    def _count(self, lines: "torch.Tensor", begin: int, rows: np.ndarray) -> None:
        import torch

        level_start, _, level_rows = self.questions.levels.levels
        if level_start[begin] == level_start[begin + len(lines)]:
            return
        levels = self.levels[begin : begin + len(lines)]
        lower = torch.searchsorted(levels, lines)  # levels with a lower score
        upper = torch.searchsorted(levels, lines, right=True)  # and with an equal one
        offset = torch.from_numpy(
            level_start[begin : begin + len(lines)] + np.arange(begin, begin + len(lines))
        )
        places = lower + offset.to(self.device)[:, None]
        tied = upper > lower
        counted = torch.bincount(places[~tied], minlength=len(self.above)).cpu().numpy()
        self.above += counted[: len(self.above)]
        for query, image in torch.nonzero(tied).cpu().numpy():
            least, most = int(lower[query, image]), int(upper[query, image])
            first_level = level_start[begin + query]
            # Levels of one score fall with the manifest row: those of later rows come first.
            equal = level_rows[first_level + least : first_level + most]
            least += int((equal > rows[image]).sum())
            self.above[first_level + begin + query + least] += 1

    def _keep(self, lines: "torch.Tensor", begin: int, rows: np.ndarray) -> None:
        import torch

        top = self.questions.top
        least = self.least[begin : begin + len(lines)]
        if lines.shape[1] > top:  # what this tile alone rules out
            least = torch.maximum(least, torch.topk(lines, top, dim=1).values[:, -1])
        query, image = torch.nonzero(lines >= least[:, None], as_tuple=True)
        scores, query, image = (each.cpu().numpy() for each in (lines[query, image], query, image))
        edges = np.searchsorted(query, np.arange(len(lines) + 1))
        for one in range(len(lines)):
            mine, number = slice(edges[one], edges[one + 1]), begin + one
            self.scores[number].append(scores[mine])
            self.rows[number].append(rows[image[mine]])
            self.held[number] += edges[one + 1] - edges[one]
            if self.held[number] > room(top):
                best = self._best(number)
                self.scores[number], self.rows[number] = [best[0]], [best[1]]
                self.held[number] = len(best[0])
                self.least[number] = float(best[0][-1])

    def _best(self, query: int) -> tuple[np.ndarray, np.ndarray]:
        return first(np.concatenate(self.scores[query]), np.concatenate(self.rows[query]), self.questions.top)

    def answers(self) -> Answers:
        best = [self._best(query) for query in range(self.questions.count)]
        return Answers(
            np.zeros(len(self.questions.levels.bins[3]), np.int64),
            self.above,
            [scores for scores, _ in best],
            [rows for _, rows in best],
            self.pair_scores,
        )


def _product(images: "torch.Tensor", block: "torch.Tensor") -> Any:
    """`images` @ `block` in float32, never in TF32."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return images @ block
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
