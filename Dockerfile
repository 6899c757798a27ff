# The main job in a container: docker build -t distadmm . && docker run --rm distadmm
# MPI is the mpich wheel; the job runs as an ordinary user.  Any other command can follow the image's name:
#   docker run --rm -v "$PWD/runs:/home/runner/runs" distadmm mpiexec -n 20 python -m distadmm.radmm --epsilon 2 ...
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG PIP_INDEX_URL=https://pypi.org/simple
ENV PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home runner && python3 -m venv /opt/distadmm
COPY pyproject.toml README.md LICENSE /src/
COPY topologies /src/topologies
COPY distadmm /src/distadmm
RUN /opt/distadmm/bin/pip install "/src[mpich,plot,secure]" && rm -r /src
# Docker's /dev/shm has 64 MB; twenty ranks of MPICH want 100 MB unless UCX leaves it alone.
ENV PATH=/opt/distadmm/bin:$PATH UCX_TLS=^posix
USER runner
WORKDIR /home/runner
CMD ["mpiexec", "-n", "20", "python", "-m", "distadmm.radmm"]
