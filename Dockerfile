# Workers and the explorer. `docker compose build` makes it; see docs/how-to/cluster.md.
FROM python:3.11-slim-bookworm AS build

COPY requirements/run.txt /src/requirements/
RUN python -m venv /opt/episodes \
    && /opt/episodes/bin/pip install --no-cache-dir --require-hashes -r /src/requirements/run.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md /src/
COPY agent_env /src/agent_env
COPY workflows /src/workflows
COPY activities /src/activities
RUN /opt/episodes/bin/pip install --no-cache-dir --no-deps --no-build-isolation /src

FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /var/lib/episodes episodes \
    && install --directory --owner=episodes --group=episodes \
        /var/lib/episodes /var/lib/episodes/artifacts
COPY --from=build /opt/episodes /opt/episodes
ENV PATH=/opt/episodes/bin:$PATH PYTHONUNBUFFERED=1 EPISODES_STATE_DIR=/var/lib/episodes
USER episodes
ENTRYPOINT ["episodes"]
