"""The styles, scripts and icon of all pages; open, since the page of a refusal needs them."""

from pathlib import Path

from fastapi import APIRouter, Depends
from starlette.responses import FileResponse

from arctic_orchestration.service.access import Open

_FOLDER = Path(__file__).parent
_CACHED = {"Cache-Control": "max-age=300"}
FILES = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "vendor/htmx.min.js": "text/javascript",
    "vendor/htmx-sse.min.js": "text/javascript",
    "vendor/idiomorph-ext.min.js": "text/javascript",
}
router = APIRouter(include_in_schema=False)


def _add(name: str, media_type: str) -> None:
    def file() -> FileResponse:
        return FileResponse(_FOLDER / name, media_type=media_type, headers=_CACHED)

    router.add_api_route(f"/{name}", file, dependencies=[Depends(Open())])


for _name, _type in FILES.items():
    _add(_name, _type)
