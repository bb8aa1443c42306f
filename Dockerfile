# The image of the gateway, built from this checkout: docker build -t mcp-airlock .
# Arguments after the image's name are flags of mcp-airlock. How to run it: docs/howto/docker.md

# Any image with glibc and a Python of at least 3.11 as `python3` will do.
ARG BASE=docker.io/library/python:3.13-slim-bookworm
# Any image with uv at /uv.
ARG UV=ghcr.io/astral-sh/uv:0.13.9

FROM ${UV} AS uv

FROM ${BASE} AS build
COPY --from=uv /uv /usr/local/bin/uv
ENV UV_PROJECT_ENVIRONMENT=/opt/airlock \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1
WORKDIR /src
# The dependencies first: they change less often than the source.
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-dev --all-extras --no-install-project --python python3
COPY README.md LICENSE ./
COPY src src
RUN uv sync --locked --no-dev --all-extras --no-editable --python python3

FROM ${BASE}
LABEL org.opencontainers.image.title="mcp-airlock" \
      org.opencontainers.image.description="A governing proxy in front of one MCP server" \
      org.opencontainers.image.licenses="Apache-2.0" \
      io.modelcontextprotocol.server.name="io.github.airlock/mcp-airlock"
# The root may be read-only, so the standard library is compiled here too, and nothing is compiled later.
RUN echo 'airlock:x:65532:65532::/data:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'airlock:x:65532:' >> /etc/group \
 && install -d -o 65532 -g 65532 -m 0750 /data \
 && python3 -m compileall -q -x '/(test|tests|idlelib|lib2to3|turtledemo|site-packages|dist-packages)/' \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/airlock /opt/airlock
ENV PATH=/opt/airlock/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /data
EXPOSE 9000
# An empty ProxyHandler: HTTP_PROXY and the like must not send the question elsewhere. The image has no curl.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --start-interval=1s --retries=3 \
  CMD ["python", "-I", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:9000/healthz', timeout=4)"]
ENTRYPOINT ["mcp-airlock", "--host", "0.0.0.0"]
