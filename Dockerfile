# docker build --build-arg VERSION=… --build-arg REVISION=… --target all --tag accel-exporter .
#
#   target                       what is in it
#   base                         the agent and what it needs itself: reads sysfs, network sources and vendors' exporters
#   nvidia                       and the binding of NVML
#   amd                          and what the health service needs that AMD's device plugin asks
#   neuron, gaudi, tpu           as base: their libraries and tools, and AMD's library, are the host's, mounted from it
#   all                          everything, and what pushing over gRPC and compressing with zstd need
#
# BASE must bring Python 3.11 or newer as /usr/local/bin/python, with pip and venv, and a glibc that is not older than the one
# for which the host's libraries were built. Nothing here depends on the processor: --platform linux/amd64,linux/arm64.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
SHELL ["/bin/sh", "-eu", "-c"]
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=0
WORKDIR /build

# Locked by hash, wheels only: nothing of what is fetched is run but the tools that build, and the one that lists what is in it.
COPY requirements.lock requirements-build.lock requirements-sbom.lock ./
RUN python -m pip wheel --quiet --require-hashes --only-binary=:all: --no-deps --wheel-dir /wheels --requirement requirements.lock \
 && python -m venv /opt/backend \
 && /opt/backend/bin/python -m pip install --quiet --require-hashes --only-binary=:all: --requirement requirements-build.lock \
 && python -m venv /opt/tools \
 && /opt/tools/bin/python -m pip install --quiet --require-hashes --only-binary=:all: --requirement requirements-sbom.lock

COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
COPY collectors collectors
COPY scripts/image-venv.sh scripts/
RUN /opt/backend/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels .


FROM build AS install-base
RUN scripts/image-venv.sh

FROM build AS install-nvidia
RUN scripts/image-venv.sh nvidia

FROM build AS install-amd
RUN scripts/image-venv.sh amd-health

FROM build AS install-all
RUN scripts/image-venv.sh all


# What all images have but the agent itself.
FROM ${BASE} AS runtime
# The image installs nothing any more: the base's installer goes.
RUN rm -rf /usr/local/lib/python3.*/site-packages/* /usr/local/lib/python3.*/ensurepip /usr/local/bin/pip*
ENV PATH=/usr/local/lib/accel-exporter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="accel-exporter" \
      org.opencontainers.image.description="Normalized telemetry of every accelerator of a node, whatever the vendor" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# A user without a name and without rights. What needs more (the kubelet's socket, the kernel's log, device nodes of some
# vendors) is a matter of the deployment, which grants it.
USER 65532:65532
WORKDIR /
EXPOSE 9859
STOPSIGNAL SIGTERM
# It asks no port, so it needs no address, no certificate and no password, whatever the configuration is.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s --retries=3 CMD ["accel-exporter", "healthy"]
ENTRYPOINT ["accel-exporter"]
CMD ["serve"]


FROM runtime AS base
COPY --from=install-base /usr/local/lib/accel-exporter /usr/local/lib/accel-exporter

# NVIDIA's container runtime brings the driver's library and the device nodes of all devices to a container that asks so;
# `utility` is the capability that NVML needs. Other runtimes pass both by.
FROM runtime AS nvidia
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
COPY --from=install-nvidia /usr/local/lib/accel-exporter /usr/local/lib/accel-exporter

FROM runtime AS amd
COPY --from=install-amd /usr/local/lib/accel-exporter /usr/local/lib/accel-exporter

FROM base AS neuron

FROM base AS gaudi

FROM base AS tpu

FROM runtime AS all
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
COPY --from=install-all /usr/local/lib/accel-exporter /usr/local/lib/accel-exporter
