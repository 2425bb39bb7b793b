# One image for every process of Briefline: `docker run briefline worker`, `... orchestrator`, `... submit`.

FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/briefline
# The libraries first: a change of our own code does not install them again. With the extras for real models and buckets.
COPY requirements/openai.txt requirements/s3.txt requirements/
RUN /opt/briefline/bin/pip install --no-cache-dir --require-hashes -r requirements/openai.txt -r requirements/s3.txt
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY orchestrator orchestrator
COPY workers workers
COPY ops ops
RUN /opt/briefline/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin briefline
# A volume that is mounted here for the first time takes over the owner.
RUN install --directory --owner=briefline --mode=0700 /var/lib/briefline
COPY --from=build /opt/briefline /opt/briefline
ENV BRIEFLINE_ARTIFACTS_URL=/var/lib/briefline/artifacts
ENV PATH=/opt/briefline/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER briefline
WORKDIR /tmp
STOPSIGNAL SIGTERM
# The exec form: no shell stands between the signal and Python.
ENTRYPOINT ["briefline"]
CMD ["--help"]
