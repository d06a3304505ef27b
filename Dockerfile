# A server of the example (docs/serving.md): docker compose --profile serve up ragc. Embedded models need no GPU, and so
# torch is the build for processors; PyPI's brings several GB for GPUs.
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN useradd --create-home --uid 1000 ragc
WORKDIR /ragc
COPY --chown=ragc:ragc . .
RUN pip install --no-cache-dir --no-deps -c constraints.txt --index-url "$TORCH_INDEX" torch
RUN pip install --no-cache-dir -c constraints.txt ".[serve]"
USER ragc
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=180s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["ragc", "serve", "data/tallowgate", "--host", "0.0.0.0"]
