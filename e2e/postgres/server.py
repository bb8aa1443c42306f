"""A shelf of items in Postgres, as an MCP server. Its dry run is honest: it does the work and rolls it back.

Every real effect is a row of the table `effects`, written in the transaction that has the effect.
"""

from __future__ import annotations

import os

import psycopg
import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

DSN = os.environ["E2E_DSN"]


def deleted(connection: psycopg.Connection[tuple[str]], names: list[str]) -> list[str]:
    """Delete items and note the effect; the names that were there."""
    rows = connection.execute("delete from items where name = any(%s) returning name", (names,)).fetchall()
    connection.execute("insert into effects (tool, names) values ('delete_items', %s)", (names,))
    return sorted(row[0] for row in rows)


def build() -> MCPServer:
    """The server and its four tools."""
    server = MCPServer("shelf", version="1.0", log_level="ERROR")

    @server.tool()
    def about() -> str:
        """Say what this is, without the database."""
        return "a shelf of items"

    @server.tool()
    def list_items() -> str:
        """List the items."""
        with psycopg.connect(DSN) as connection:
            rows = connection.execute("select name from items order by name").fetchall()
        return ", ".join(row[0] for row in rows)

    @server.tool()
    def add_items(names: list[str]) -> str:
        """Add items."""
        with psycopg.connect(DSN) as connection:
            for name in names:
                connection.execute("insert into items (name) values (%s)", (name,))
            connection.execute("insert into effects (tool, names) values ('add_items', %s)", (names,))
        return f"added {', '.join(names)}"

    @server.tool()
    def delete_items(names: list[str], dry_run: bool = False) -> str:
        """Delete items."""
        with psycopg.connect(DSN) as connection:
            found = ", ".join(deleted(connection, names)) or "nothing"
            if dry_run:
                connection.rollback()
                return f"would delete {found}"
        return f"deleted {found}"

    return server


def main() -> None:
    """Make the tables and serve."""
    host, _, port = os.environ["E2E_LISTEN"].rpartition(":")
    with psycopg.connect(DSN) as connection:
        connection.execute("create table if not exists items (name text not null)")
        connection.execute("create table if not exists effects (tool text not null, names text[] not null)")
    # The name it is called by is the stack's; there is no browser in the stack to be misled.
    app = build().streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )
    uvicorn.run(app, host=host, port=int(port), log_level="error", access_log=False)


if __name__ == "__main__":
    main()
