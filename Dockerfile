# mcpo with verl, vLLM and flash-attn: the steps of `make setup-gpu` (docs/gpu-reference.md). Where flash-attn has to be compiled, and where vLLM
# and triton compile kernels when they start, they need nvcc, a compiler and Python's headers: hence `devel`. No GPU is needed to build it.
FROM nvidia/cuda:13.0.3-devel-ubuntu24.04

RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential git python3.12-dev python3.12-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3.12 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /opt/mcpo
COPY constraints-gpu.txt constraints-flash-attn.txt ./
RUN pip install --no-deps --require-hashes --requirement constraints-gpu.txt
RUN pip install --no-deps --require-hashes --no-build-isolation --no-cache-dir --requirement constraints-flash-attn.txt

# With .git, as the records of runs name the commit.
COPY . .
RUN pip install --no-deps --no-build-isolation --editable .
RUN pip check

# Results: mount a folder here.
ENV MCPO_HOME=/results
CMD ["mcpo", "doctor"]
