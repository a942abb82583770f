# neaptide with Java, in a container: `make image` builds it, docs/ci.md says how it is used.
# BASE may be any Debian or Ubuntu with Python 3.11 or later. Packages that it has are not installed.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS base
RUN command -v java && command -v python3 && command -v pip3 || { \
      apt-get update && \
      apt-get install --yes --no-install-recommends openjdk-17-jre-headless maven python3 python3-pip && \
      rm -rf /var/lib/apt/lists/*; }

FROM base AS installed
# --no-deps, to take the libraries from elsewhere.
ARG PIP_FLAGS=""
COPY dist/*.whl /wheels/
RUN pip3 install --quiet --no-cache-dir ${PIP_FLAGS} --target /opt/neaptide /wheels/*.whl

FROM base
COPY --from=installed /opt/neaptide /opt/neaptide
ENV PYTHONPATH=/opt/neaptide PATH=/opt/neaptide/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /work
ENTRYPOINT ["neaptide"]
