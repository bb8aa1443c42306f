"""FastMCP's proxy in front of the fake upstream:  python fastmcp_proxy.py PORT UPSTREAM_URL   (needs fastmcp)"""

import sys
from fastmcp.server import create_proxy

create_proxy(sys.argv[2], name="p").run(
    transport="http",
    host="127.0.0.1",
    port=int(sys.argv[1]),
    path="/mcp",
    stateless_http=True,
    show_banner=False,
    log_level="error",
)
