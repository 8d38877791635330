"""A pinhole camera in the street, and pasting flat pieces of the town as it sees them.

World coordinates are texture pixels of the building in question: x to the right along the front, y down, z
into the building; the front lies in z = 0, the ground in y = height.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from cairn.benchmarks.toytown.facade import Block, Layer, Model
from cairn.benchmarks.toytown.specification import WIDTH

IMAGE_SIZE = (320, 240)  # width, height of every photograph
NEAR = 30.0  # what is nearer to the camera than this, in texture pixels, is not drawn


@dataclass(frozen=True)
class Difficulty:
    """The ranges from which a photograph is drawn."""

    obliquity: tuple[float, float]  # degrees between the street's normal and the line of sight
    scale: tuple[float, float]  # width of the frontal facade over the width of the image
    offset: float  # how far the aim strays from the middle, in facade widths
    occluders: tuple[int, int]
    severity: float  # of light, blur, noise and compression


DIFFICULTIES = {
    "plain": Difficulty((0, 35), (0.65, 1.05), 0.10, (0, 2), 0.5),
    "tough": Difficulty((20, 50), (0.48, 1.7), 0.20, (0, 3), 0.7),
    "extreme": Difficulty((42, 66), (0.30, 2.3), 0.40, (2, 4), 1.1),
}


@dataclass(frozen=True)
class Camera:
    intrinsics: np.ndarray  # 3×3, pixels
    rotation: np.ndarray  # 3×3, world to camera
    centre: np.ndarray  # 3, world

    @property
    def obliquity(self) -> float:
        """Degrees between the optical axis and the front's normal."""
        return float(np.degrees(np.arccos(np.clip(self.rotation[2, 2], -1, 1))))

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """World points (n, 3) to pixels (n, 2) and depths (n,); pixels mean nothing nearer than NEAR."""
        seen = (points - self.centre) @ self.rotation.T
        depth = seen[:, 2]
        safe = np.where(depth > NEAR, depth, NEAR)
        pixels = seen @ self.intrinsics.T
        return pixels[:, :2] / safe[:, None], depth

    def plane(self, origin: np.ndarray, across: np.ndarray, along: np.ndarray) -> np.ndarray:
        """3×3 homography from (a, b) on the plane origin + a·across + b·along to pixels."""
        offset = self.rotation @ (origin - self.centre)
        columns = np.column_stack([self.rotation @ across, self.rotation @ along, offset])
        return self.intrinsics @ columns


def stand_in_street(height: int, difficulty: Difficulty, random: np.random.Generator) -> Camera:
    """A camera above the ground before a facade of `height`, aimed at it as `difficulty` allows."""
    azimuth = np.radians(random.uniform(*difficulty.obliquity) * random.choice([-1, 1]))
    scale = np.exp(random.uniform(*np.log(difficulty.scale)))
    focal = IMAGE_SIZE[0] * random.uniform(0.8, 1.5)
    distance = focal * WIDTH / (scale * IMAGE_SIZE[0])
    x = WIDTH * (0.5 + random.uniform(-1, 1) * difficulty.offset)
    y = height * (0.5 + random.uniform(-1, 1) * difficulty.offset)
    # Some stand in the street (some 50 pixels are 1.7 metres), some on a balcony or a slope opposite.
    eye = random.uniform(45, 75) if random.random() < 0.7 else random.uniform(75, 320)
    centre = np.array([x + distance * np.sin(azimuth), height - eye, -distance * np.cos(azimuth)])
    axis = np.array([x, y, 0]) - centre
    axis /= np.linalg.norm(axis)
    right = np.cross([0, 1, 0], axis)
    right /= np.linalg.norm(right)
    roll = np.radians(random.normal(0, 3))
    turn = np.array([[np.cos(roll), np.sin(roll), 0], [-np.sin(roll), np.cos(roll), 0], [0, 0, 1]])
    rotation = turn @ np.stack([right, np.cross(axis, right), axis])
    intrinsics = np.array([[focal, 0, IMAGE_SIZE[0] / 2], [0, focal, IMAGE_SIZE[1] / 2], [0, 0, 1.0]])
    return Camera(intrinsics, rotation, centre)


def paste_layer(image: np.ndarray, camera: Camera, layer: Layer, left: float, top: float) -> None:
    """Draw a layer that hangs parallel to the front, its texture's corner at world (left, top)."""
    _paste(image, camera, layer, np.array([left, top, layer.depth]), np.array([1.0, 0, 0]))


def paste_building(image: np.ndarray, camera: Camera, model: Model) -> None:
    """Draw a building from back to front: side walls, layers, and the cheeks of its bay before the bay."""
    _paste_cheeks(image, camera, model.body)
    for number, layer in enumerate(model.layers):
        if model.bay is not None and number == len(model.layers) - 1:
            _paste_cheeks(image, camera, model.bay)
        paste_layer(image, camera, layer, layer.left, 0)


def _paste_cheeks(image: np.ndarray, camera: Camera, block: Block) -> None:
    """The side wall of a block that faces the camera."""
    backwards = np.array([0, 0, 1.0])
    if camera.centre[0] < block.left:
        _paste(image, camera, block.wall, np.array([block.left, block.top, block.front]), backwards)
    if camera.centre[0] > block.right:
        _paste(image, camera, block.wall, np.array([block.right, block.top, block.front]), backwards)


def _paste(image: np.ndarray, camera: Camera, layer: Layer, corner: np.ndarray, across: np.ndarray) -> None:
    """Draw an upright texture on `image` (uint8 BGR): its corner's place, and where its rows run.

    It is taken from the mip level that fits, so that nothing aliases. One that reaches behind the camera is
    left out.
    """
    tall, wide = layer.texture.shape[:2]
    down = np.array([0, 1.0, 0])
    pixels, depths = camera.project(
        corner + np.array([0 * down, wide * across, wide * across + tall * down, tall * down])
    )
    if depths.min() <= NEAR:
        return
    x0, y0 = np.maximum(np.floor(pixels.min(0)).astype(int) - 1, 0)
    x1, y1 = np.minimum(np.ceil(pixels.max(0)).astype(int) + 2, IMAGE_SIZE)
    if x0 >= x1 or y0 >= y1:
        return
    shrink = np.sqrt(wide * tall / max(cv2.contourArea(pixels.astype(np.float32)), 1.0))
    texture = layer.level(int(np.clip(np.floor(np.log2(max(shrink, 1e-3)) + 0.35), 0, 3)))
    # Halving may round a side down: the map uses the sizes as they are.
    finer = np.diag([wide / texture.shape[1], tall / texture.shape[0], 1.0])
    shift = np.array([[1, 0, -x0], [0, 1, -y0], [0, 0, 1.0]])
    matrix = shift @ camera.plane(corner, across, down) @ finer
    warped = cv2.warpPerspective(texture, matrix, (int(x1 - x0), int(y1 - y0)), flags=cv2.INTER_LINEAR)
    view = image[y0:y1, x0:x1]
    rest = cv2.cvtColor(255 - warped[..., 3], cv2.COLOR_GRAY2BGR)
    behind = cv2.multiply(view, rest, scale=1 / 255)
    view[:] = cv2.add(cv2.cvtColor(warped, cv2.COLOR_BGRA2BGR), behind)
