"""The page on which people judge a sample: one HTML file with all pictures in it, no server, no network."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

from cairn.contamination.sampling import VERDICTS, Sample
from cairn.files import atomic

TEMPLATE = Path(__file__).with_name("judging.html.jinja")
LONGEST = 640
"""Longer side, in pixels, of the pictures on the page: enough to compare, and 200 pairs stay below 40 MB."""

Picture = Callable[[str], bytes]
"""The JPEG to show, given a query's or an image's id: see `page_picture`."""


def write_judging_page(
    path: Path, sample: Sample, query_picture: Picture, image_picture: Picture, title: str
) -> None:
    """Write the page of `sample`; the same sample and pictures give the same bytes.

    `query_picture` gives the query's crop by query id, `image_picture` a training image by image id, both
    as JPEG. Neither rule nor class nor the detector's verdict is on the page: they would sway the judge.
    """
    import jinja2

    shown_queries: dict[str, str] = {}
    items = []
    for one in sample.items:
        if one.query_id not in shown_queries:
            shown_queries[one.query_id] = _data(query_picture(one.query_id))
        items.append({"id": one.item_id, "query": one.query_id, "image": _data(image_picture(one.image_id))})
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(TEMPLATE.read_text("utf-8"))
    content = {"sample": sample.digest, "items": items, "queries": shown_queries}
    page = template.render(
        title=title,
        count=len(items),
        verdicts=VERDICTS,
        # "<" cannot end the script element when it is written as an escape.
        content=json.dumps(content, sort_keys=True).replace("<", "\\u003c"),
    )
    with atomic(path) as temporary:
        temporary.write_text(page, "utf-8")


def page_picture(pixels, longest: int = LONGEST) -> bytes:
    """`pixels` [height, width, 3] (uint8; blue, green, red) as a JPEG no longer than `longest`."""
    import cv2

    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    done, data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 85])
    assert done
    return data.tobytes()


def _data(jpeg: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")
