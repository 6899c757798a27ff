# The main job in a container: docker build -t distadmm . && docker run --rm distadmm
# MPI is the mpich wheel; the job runs as an ordinary user.  Any other command can follow the image's name:
#   docker run --rm -v "$PWD/runs:/home/runner/runs" distadmm mpiexec -n 20 python -m distadmm.radmm --epsilon 2 ...
# Stages: `build` makes the environment, `host` adds sshd for several hosts (compose.yaml), the last is the image.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ARG PIP_INDEX_URL=https://pypi.org/simple
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/distadmm
COPY pyproject.toml setup.py README.md LICENSE MANIFEST.in /src/
COPY topologies /src/topologies
COPY distadmm /src/distadmm
RUN /opt/distadmm/bin/pip install "/src[mpich,plot,secure]"

FROM ${BASE} AS job
RUN useradd --create-home --uid 1000 runner
COPY --from=build /opt/distadmm /opt/distadmm
# Docker's /dev/shm has 64 MB; twenty ranks of MPICH want 100 MB unless UCX leaves it alone.
ENV PATH=/opt/distadmm/bin:$PATH UCX_TLS=^posix PYTHONDONTWRITEBYTECODE=1
WORKDIR /home/runner
CMD ["mpiexec", "-n", "20", "python", "-m", "distadmm.radmm"]

FROM job AS host
RUN apt-get update && apt-get install -y --no-install-recommends openssh-server && rm -rf /var/lib/apt/lists/*
COPY --chmod=755 launch/hosts/container /usr/local/bin/host
# A new volume mounted there gets its owner.
RUN install -d -o runner -g runner /keys
USER runner
ENTRYPOINT ["host"]
CMD []

FROM job
USER runner
