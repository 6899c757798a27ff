# The main job in a container: docker build -t distadmm . && docker run --rm distadmm
# MPI is the mpich wheel; the job runs as an ordinary user.
ARG BASE=python:3.12-slim
FROM ${BASE}
ENV PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_NUM_THREADS=1
COPY pyproject.toml README.md LICENSE /src/
COPY distadmm /src/distadmm
RUN python3 -m venv /opt/distadmm \
 && /opt/distadmm/bin/pip install "/src[mpich,plot,secure]" \
 && useradd --create-home runner
ENV PATH=/opt/distadmm/bin:$PATH
USER runner
WORKDIR /home/runner
CMD ["mpiexec", "-n", "20", "python", "-m", "distadmm.radmm"]
