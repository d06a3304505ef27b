"""Embedding spread over the workers of a Ray cluster, or of this machine's own when there is no cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragc.errors import KnowledgeError
from ragc.models.embedded.encoder import Embedder

Fan = Callable[[Sequence[Sequence[str]]], Iterable[NDArray[np.float32]]]
"""Gives the vectors of each list of texts, in the order of the lists."""


class _Worker:
    """A copy of the model in a process of its own."""

    def __init__(self, make: Callable[[], Embedder]) -> None:
        self.embedder = make()

    def read_digest(self) -> str:
        return self.embedder.digest

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embedder.encode(texts)


@contextmanager
def embed_over_ray(make: Callable[[], Embedder], workers: int = 0) -> Iterator[Fan]:
    """Yield a fan over `workers` processes, each with its own `make()`.

    With 0 workers, one a processor. It joins the cluster that RAY_ADDRESS names, or starts one on this machine and
    ends it afterwards. Every host needs this package and the model. Raises `KnowledgeError` when Ray is not
    installed, when a worker dies, or when one has other weights than this process.
    """
    try:
        import ray
        from ray.util import ActorPool
    except ImportError as error:
        mend = 'Run: python -m pip install -c constraints.txt -e ".[ray]"'
        raise KnowledgeError("Ray is not installed.", mend) from error
    began = not ray.is_initialized()
    remote: list[Any] = []
    try:
        if began:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        processors = ray.cluster_resources().get("CPU", 1.0)
        count = workers or max(int(processors), 1)
        share = min(1.0, processors / count)  # a worker that asks for more than there is would never start
        remote = [ray.remote(num_cpus=share)(_Worker).remote(make) for _ in range(count)]
        own = make().digest
        if any(digest != own for digest in ray.get([worker.read_digest.remote() for worker in remote])):
            raise KnowledgeError("A Ray worker has another embedding model.", "Install the same weights on every host.")
        yield lambda chunks: ActorPool(remote).map(lambda worker, texts: worker.encode_texts.remote(texts), chunks)
    except (ray.exceptions.RayError, ConnectionError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise KnowledgeError(
            f"Ray did not embed the texts: {reason}.",
            "Look at the cluster (`ray status`), or index without --engine ray; the last index stays as it is.",
        ) from error
    finally:
        for worker in remote:
            ray.kill(worker)
        if began:
            ray.shutdown()
