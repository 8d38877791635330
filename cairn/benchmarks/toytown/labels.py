"""Labels from geometry: what a photograph of the right building is worth to a query."""

from collections.abc import Mapping

from cairn.benchmarks.toytown.photograph import Geometry

# A positive shows this much of what the query shows, at a scale and an angle at which one could know it.
JUNK_BELOW_SHARE = 0.25
JUNK_BELOW_SCALE = 0.28
JUNK_ABOVE_OBLIQUITY = 60.0
EASY_ABOVE_SHARE = 0.6
EASY_SCALES = (0.45, 1.3)
EASY_BELOW_OBLIQUITY = 38.0


def shared_share(query: Geometry, view: Geometry) -> float:
    """Share (0-1) of the points of the facade visible in the query that are visible in the view too."""
    return float((query.visible & view.visible).sum() / max(1, query.visible.sum()))


def grade(query: Geometry, view: Geometry) -> str:
    """'easy', 'hard' or 'junk', in the sense of the revisited Oxford and Paris benchmarks.

    Radenović et al., CVPR 2018, section 2.2, had people judge; here the visible share, the scale and the
    obliquity decide: junk is what a person could hardly recognise, easy what is clearly visible.
    """
    share = shared_share(query, view)
    too_small, too_oblique = view.scale < JUNK_BELOW_SCALE, view.obliquity > JUNK_ABOVE_OBLIQUITY
    if share < JUNK_BELOW_SHARE or too_small or too_oblique:
        return "junk"
    fitting = EASY_SCALES[0] < view.scale < EASY_SCALES[1]
    if share > EASY_ABOVE_SHARE and fitting and view.obliquity < EASY_BELOW_OBLIQUITY:
        return "easy"
    return "hard"


def grades(query: Geometry, views: Mapping[str, Geometry]) -> dict[str, str]:
    """Grade of every gallery image of the query's landmark."""
    return {image_id: grade(query, view) for image_id, view in sorted(views.items())}
