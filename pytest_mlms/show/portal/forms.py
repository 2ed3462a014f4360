"""Forms of pages: their fields, as browsers send them."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

_MOST_FIELDS = 100


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, the last of each name; raises HTTPException."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "send a form (application/x-www-form-urlencoded)")
    try:
        body = await request.body()
        fields = parse_qs(
            body.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=_MOST_FIELDS
        )
    except ClientDisconnect:
        raise HTTPException(400, "the client went away") from None
    except ValueError:
        raise HTTPException(400, "the form can't be read") from None
    return {name: values[-1] for name, values in fields.items()}
