# The images of operator, broker and audit: Debian's Python, the locked dependencies, our own wheel.
# `hack/images/build` puts the wheels into build/images/ and builds it: a build that fetches nothing
# but Debian packages also works where containers have no network of their own. No BuildKit syntax.
ARG BASE=debian:bookworm-slim

FROM $BASE AS python
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log \
    && useradd --uid 10001 --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin tidemark

FROM python AS dependencies
COPY build/images/wheels /wheels
# Bytecode by hash, unchecked: its file system will be read-only, and no layer's dates count.
RUN python3 -m venv --without-pip /opt/tidemark \
    && PYTHONPATH="$(echo /wheels/pip-*.whl)" /opt/tidemark/bin/python -m pip install \
        --quiet --no-index --find-links /wheels --no-deps --no-compile --require-hashes \
        -r /wheels/requirements.lock \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/tidemark/lib

FROM dependencies AS distribution
COPY build/images/dist /dist
RUN PYTHONPATH="$(echo /wheels/pip-*.whl)" /opt/tidemark/bin/python -m pip install \
        --quiet --no-index --no-deps --no-compile --no-warn-script-location \
        --root /own /dist/*.whl \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /own /own/opt/tidemark/lib

# A change of ours makes one thin layer, the last: it is all that a new deployment has to move.
FROM python AS runtime
COPY --from=dependencies /opt/tidemark /opt/tidemark
COPY --from=distribution /own/ /
ENV PATH=/opt/tidemark/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001

# tini is PID 1, so that a `kill -9` from within of its child ends the container, as a crash would.
FROM runtime AS operator
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "tidemark-operator"]

FROM runtime AS broker
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "tidemark-broker"]

# The audit has Spark and Java with it, some 900 MB: an image of its own that only its Jobs fetch.
FROM dependencies AS audit-dependencies
COPY build/images/audit-wheels /audit-wheels
RUN PYTHONPATH="$(echo /wheels/pip-*.whl)" /opt/tidemark/bin/python -m pip install \
        --quiet --no-index --find-links /audit-wheels --no-deps --no-compile --require-hashes \
        -r /audit-wheels/requirements.lock \
    && PYTHONPATH="$(echo /wheels/pip-*.whl)" /opt/tidemark/bin/python -m pip install \
        --quiet --no-index --no-deps --no-compile /audit-wheels/pyspark-*.whl \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/tidemark/lib

FROM python AS audit
# Java's package wants the directory of manual pages, which a slim Debian lacks.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
COPY --from=audit-dependencies /opt/tidemark /opt/tidemark
COPY --from=distribution /own/ /
ENV PATH=/opt/tidemark/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    TIDEMARK_SPARK_ARCHIVE=/opt/tidemark/spark-archive
# Java's classes, loaded once here: Spark starts in half the time. The link is where SparkApplications
# find the driver, whichever Python is the image's.
RUN python -m tidemark_audit.engines.warm_up \
    && ln -s "$(python -c 'from tidemark_cli.spark_driver import audit_driver; print(audit_driver.__file__)')" \
        /opt/tidemark/audit_driver.py
USER 10001:10001
# `tidemark audit`, or a driver or executor of Spark's where it is called as one.
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "python", "-m", "tidemark_audit.spark_pod"]
