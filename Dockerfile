# docker build --build-arg VERSION=… --build-arg REVISION=… --tag accel-exporter .
# BASE must bring Python 3.11 or newer under /usr/local and a glibc: vendors' libraries are built against one.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
SHELL ["/bin/sh", "-eu", "-c"]
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# Locked by hash, wheels only: nothing of what is fetched is run but the build backend.
COPY requirements.lock requirements-build.lock ./
RUN python -m pip wheel --quiet --require-hashes --only-binary=:all: --no-deps --wheel-dir /wheels --requirement requirements.lock \
 && python -m pip install --quiet --require-hashes --only-binary=:all: --requirement requirements-build.lock

COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
COPY collectors collectors
# Byte code is compiled here, the same at each build: the user below could not keep it, and each worker would compile anew.
RUN SOURCE_DATE_EPOCH=0 python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/accel-exporter \
 && python -m pip --python /opt/accel-exporter/bin/python install --quiet --no-index --no-deps --no-compile /wheels/*.whl \
 && PYTHONHASHSEED=0 /opt/accel-exporter/bin/python -m compileall -qq --invalidation-mode unchecked-hash /opt/accel-exporter/lib \
 && /opt/accel-exporter/bin/accel-exporter version


FROM ${BASE}
# The image installs nothing any more: the base's installer goes.
RUN rm -rf /usr/local/lib/python3.*/site-packages/* /usr/local/lib/python3.*/ensurepip /usr/local/bin/pip*
COPY --from=build /opt/accel-exporter /opt/accel-exporter

# NVIDIA's container runtime brings the driver's library and the device nodes of all devices to a container that asks so;
# `utility` is the capability that NVML needs. Other runtimes pass both by.
ENV PATH=/opt/accel-exporter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility

ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="accel-exporter" \
      org.opencontainers.image.description="Normalized telemetry of every accelerator of a node, whatever the vendor" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# A user without a name and without rights. What needs more (the kernel's log, device nodes of some vendors) is a matter of
# the deployment, which grants it by group or capability.
USER 65532:65532
WORKDIR /
EXPOSE 9859
STOPSIGNAL SIGTERM
# The port is the default one or that of ACCEL_EXPORTER_LISTEN; who listens elsewhere by flag or file says so here, too.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
  CMD ["python", "-I", "-c", "import http.client, os, sys; port = os.environ.get('ACCEL_EXPORTER_LISTEN', ':9859').rpartition(':')[2]; c = http.client.HTTPConnection('127.0.0.1', int(port), timeout=4); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["accel-exporter"]
CMD ["serve"]
