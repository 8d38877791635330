"""toytown: the embedded default benchmark, a town drawn from one seed with ground truth from its geometry.

Synthetic: every picture is drawn by this code, nothing is photographed or downloaded.
"""

from cairn.benchmarks.toytown.settings import ToytownSettings
from cairn.benchmarks.toytown.town import ImageRole, draw_town, image_roles

__all__ = ["ImageRole", "ToytownSettings", "draw_town", "image_roles"]
