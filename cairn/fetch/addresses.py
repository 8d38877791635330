"""Addresses: what kinds there are, where a mirror keeps a file, what a hub says about one."""

import os
import re
from urllib.parse import urlsplit

from cairn.errors import SourceError

SCHEMES = ("http", "https", "file")
_HUB = re.compile(r"hf://datasets/(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[\w.-]+)/(?P<path>[\w./+-]+)")


def resolve(url: str | None, name: str, mirror: str | None) -> str | None:
    """The address to download from; None where there is none.

    `hf://datasets/OWNER/NAME@REVISION/PATH` is a file of a data set on the Hugging Face hub (HF_ENDPOINT
    names another). A mirror is a prefix that holds the original addresses as
    `wget -x` lays them out, host first: PREFIX/HOST/PATH; a file without an address is at PREFIX/`name`.
    SourceError for any scheme but http, https, file and hf.
    """
    direct = _checked(_from_hub(url)) if url else None
    if not mirror:
        return direct
    _checked(mirror)
    if direct is None:
        return f"{mirror.rstrip('/')}/{name}"
    parts = urlsplit(direct)
    return f"{mirror.rstrip('/')}/{parts.netloc}/{parts.path.lstrip('/')}"


def hub_checksum(url: str) -> str | None:
    """SHA-256 that the hub states for a large file of its own; None for others and where it says nothing."""
    if not url.startswith("hf://"):
        return None
    from huggingface_hub import get_hf_file_metadata

    try:
        etag = get_hf_file_metadata(_from_hub(url), timeout=20).etag
    except Exception as error:  # the library's HTTP client changes its errors from version to version
        text = str(error).strip().splitlines()
        raise SourceError(
            f"{url}: the hub does not tell about it ({text[0][:200] if text else type(error).__name__})"
        ) from None
    # For files in large-file storage the hub's ETag is the file's SHA-256; for others it is a git hash.
    return etag if etag and re.fullmatch("[0-9a-f]{64}", etag) else None


def hub_headers(url: str) -> dict[str, str]:
    """Headers with the user's hub token, where `url` is a file of the hub."""
    if not url.startswith("hf://"):
        return {}
    from huggingface_hub.utils import build_hf_headers

    return build_hf_headers()


def _from_hub(url: str) -> str:
    if not url.startswith("hf://"):
        return url
    match = _HUB.fullmatch(url)
    if not match:
        raise SourceError(f"{url}: expected hf://datasets/OWNER/NAME@REVISION/PATH")
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{endpoint}/datasets/{match['repo']}/resolve/{match['revision']}/{match['path']}"


def _checked(url: str) -> str:
    scheme = urlsplit(url).scheme.lower()
    if scheme not in SCHEMES:
        raise SourceError(f"{url}: only http, https, file and hf addresses are read, not {scheme or 'none'}")
    return url
