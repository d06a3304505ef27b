"""optuna-dashboard on a study while it is searched: on this machine only, and to look at only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optimize.journal import join
from program.errors import SettingsError
from program.settings import Project

HOST = "127.0.0.1"


def require_dashboard() -> None:
    """Raises `SettingsError` when optuna-dashboard is not installed."""
    try:
        import optuna_dashboard  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            "optuna-dashboard, which --watch opens, is not installed.",
            'Install it: python -m pip install -c constraints.txt -e ".[dashboard]"',
        ) from error


@contextmanager
def dashboard(project: Project, study: str) -> Iterator[str]:
    """The address under which a study is shown until the block is left.

    Only reading is allowed: a page from elsewhere that knows the address cannot delete the study. Raises
    `SettingsError` when optuna-dashboard is not installed, `StudyError` for an unknown study.
    """
    require_dashboard()
    from optuna_dashboard import wsgi

    storage = join(project, study).storage
    app = _reading(wsgi(storage))
    server = make_server(HOST, 0, app, server_class=_Server, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/dashboard/studies/{storage.get_study_id_from_name(study)}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """A request at a time would leave a browser waiting on its own next one."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Says nothing of requests."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _reading(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """The application without all that changes anything."""

    def only(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in {"GET", "HEAD"}:
            return app(environ, start)
        start("405 Method Not Allowed", [("Content-Type", "text/plain"), ("Allow", "GET, HEAD")])
        return [b"This study is shown to be looked at only."]

    return only
