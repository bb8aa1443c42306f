"""The bare pass-through on the peer's own stack: Starlette + httpx + uvicorn, no checks at all."""

import sys
import httpx, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

port, upstream = int(sys.argv[1]), sys.argv[2]
extra = (
    {"loop": "uvloop", "http": "httptools"} if "fast" in sys.argv[3:] else {"loop": "asyncio", "http": "h11"}
)
client = httpx.AsyncClient(timeout=60)
KEEP = ("mcp-protocol-version", "mcp-method", "mcp-name", "content-type", "accept")


async def mcp(request):
    body = await request.body()
    r = await client.post(
        upstream, content=body, headers={k: v for k, v in request.headers.items() if k in KEEP}
    )
    return Response(r.content, r.status_code, media_type=r.headers.get("content-type"))


uvicorn.run(
    Starlette(routes=[Route("/mcp", mcp, methods=["POST"])]),
    host="127.0.0.1",
    port=port,
    log_level="warning",
    access_log=False,
    **extra,
)
