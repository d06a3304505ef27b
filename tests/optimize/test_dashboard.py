"""`ragc compile --watch`: the study in a browser, to look at only; without the package, how to get it."""

import json
import re
import sys
import urllib.error
import urllib.request

import pytest

from optimize import dashboard
from optimize.cli.main import main
from optimize.journal import names
from program.settings import Project


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["ragc", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


def test_without_the_package_the_mend_is_told_before_anything_is_spent(own_shop, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    assert run(monkeypatch, "compile", own_shop, "--watch") == 2
    assert '".[dashboard]"' in capsys.readouterr().err
    assert not (own_shop / ".ragc").exists()


def test_a_study_is_shown_to_be_looked_at_only(compiled):
    project = Project.open(compiled)
    with dashboard.dashboard(project, names(project)[-1]) as address:
        root = address.partition("/dashboard")[0]
        with urllib.request.urlopen(f"{root}/api/studies") as reply:
            shown = json.load(reply)
        assert [one["study_name"] for one in shown["study_summaries"]] == [names(project)[-1]]
        with urllib.request.urlopen(f"{root}/api/studies/{address.rpartition('/')[2]}") as reply:
            study = json.load(reply)
        assert study["directions"] == ["maximize", "minimize"]
        assert study["objective_names"] == ["utility", "model calls a question"]
        assert len(study["best_trials"]) > 1  # a front
        delete = urllib.request.Request(f"{root}/api/studies/0", method="DELETE")
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(delete)
        assert urllib.request.urlopen(address).status == 200
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address)


def test_a_compile_that_is_watched_says_where(own_shop, monkeypatch, capsys):
    visited = []
    monkeypatch.setattr("webbrowser.open", lambda url: visited.append(urllib.request.urlopen(url).status))
    assert run(monkeypatch, "compile", own_shop, "--trials", "1", "--watch") in {0, 3}
    assert visited == [200]
    out, err = capsys.readouterr()
    assert re.search(r"http://127\.0\.0\.1:\d+/dashboard", err)
    assert re.search(r"over shop@v1: \w+; [+-].* over plain RAG\n", out)
