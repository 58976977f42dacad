"""Read the page's files once and serve them from memory, compressed where the browser can."""

import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

CONTENT_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
# Everything comes from here; nothing is inline, framed or sent elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for"
    " 'script'; trusted-types 'none'"
)
SAFE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    body: bytes
    gzipped: bytes
    content_type: str
    tag: str  # an ETag: a new release has other files

    def response(self, request: web.Request) -> web.Response:
        headers = {
            **SAFE_HEADERS,
            "Cache-Control": "no-cache",
            "ETag": self.tag,
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("If-None-Match") == self.tag:
            return web.Response(status=304, headers=headers)
        body = self.body
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            body = self.gzipped
        return web.Response(
            body=body, content_type=self.content_type, charset="utf-8", headers=headers
        )


def read_static_files() -> dict[str, StaticFile]:
    """Return the files of `static/` by name."""
    found = {}
    for entry in resources.files(__package__).joinpath("static").iterdir():
        content_type = CONTENT_TYPES.get(entry.name.rpartition(".")[2])
        if content_type is not None:
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            found[entry.name] = StaticFile(body, gzip.compress(body, mtime=0), content_type, tag)
    return found
