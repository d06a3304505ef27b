"""Studies on disk: named, told apart, whole after a kill, in a file or a database."""

import sqlite3
import threading

import optuna
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from optimize.compiler import store
from optimize.compiler.journal import create, join, names
from optimize.compiler.trials import distributions
from program.errors import SettingsError, StudyError
from program.loop.policy import Dimension
from program.project import Project

SPACE = [Dimension("a", 0, 1), Dimension("n", 1, 4, integral=True), Dimension("w", 0.25, 4, log=True)]


def trial(value):
    return optuna.create_trial(
        params={"a": 0.5, "n": 2, "w": 1.0},
        distributions=distributions(SPACE),
        values=[value, 1.0],
        user_attrs={"usd": 0.0},
    )


def in_database(shop):
    settings = shop / "ragc.toml"
    settings.write_text(settings.read_text() + f'\n[study]\nstorage = "sqlite:///{shop}/studies.db"\n')
    return Project.open(shop)


@pytest.mark.parametrize("where", ["a journal file", "a database"])
def test_trials_are_there_for_whoever_joins(own_shop, where):
    project = Project.open(own_shop) if where == "a journal file" else in_database(own_shop)
    study = create(project, {"seed": 3})
    study.add(trial(0.25))
    again = join(project, study.name)
    again.add(trial(0.75))
    assert [t.values[0] for t in study.trials()] == [0.25, 0.75]
    assert again.attributes["identity"] == {"seed": 3}
    again.finish("shop@v2")
    assert join(project).finished == "shop@v2"


def test_a_study_names_its_two_objectives_for_whoever_looks_at_it(own_shop):
    journal = create(Project.open(own_shop), {})
    study = optuna.load_study(study_name=journal.name, storage=journal.storage)
    assert study.metric_names == ["utility", "model calls a question"]
    assert [way.name for way in study.directions] == ["MAXIMIZE", "MINIMIZE"]


def test_each_study_has_a_name_of_its_own_and_the_last_is_joined_by_default(own_shop):
    project = Project.open(own_shop)
    made = [create(project, {}).name for _ in range(3)]
    assert made == names(project) == ["shop-1", "shop-2", "shop-3"]
    assert join(project).name == "shop-3"


def test_a_cascade_is_the_same_models_when_it_is_read_again(own_shop):
    identity = {"models": {"decide": ("local/minilm", "openai/x"), "write": "local/extract"}}
    made = create(Project.open(own_shop), identity)
    made.expect(identity)
    with pytest.raises(StudyError, match=r"models\.decide"):
        made.expect({"models": {**identity["models"], "decide": ("local/minilm", "openai/y")}})


def test_an_unknown_study_is_told_with_those_there_are(own_shop):
    project = Project.open(own_shop)
    with pytest.raises(StudyError, match="Start one"):
        join(project)
    create(project, {})
    with pytest.raises(StudyError, match="shop-1"):
        join(project, "shop-9")


def test_other_conditions_are_refused_with_every_difference(own_shop):
    study = create(Project.open(own_shop), {"space": {"policy.k": [2, 12]}, "seed": 0})
    with pytest.raises(StudyError) as refused:
        study.expect({"space": {"policy.k": [2, 20], "policy.new": [0, 1]}, "seed": 0})
    assert "space.policy.k was [2, 12], is [2, 20]" in str(refused.value)
    assert "space.policy.new is only here" in str(refused.value)
    assert "seed" not in str(refused.value)


def test_a_line_that_was_cut_off_is_left_out_and_the_study_goes_on(own_shop):
    project = Project.open(own_shop)
    study = create(project, {})
    study.add(trial(0.5))
    with (own_shop / ".ragc/studies/shop-1.journal").open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    again = join(project)
    again.add(trial(0.75))
    assert [t.values[0] for t in join(project).trials()] == [0.5, 0.75]


def test_a_database_that_is_away_for_a_while_is_waited_for(own_shop, monkeypatch):
    monkeypatch.setattr(store, "PAUSE", 0.1)
    study = create(in_database(own_shop), {})
    away = sqlite3.connect(own_shop / "studies.db", check_same_thread=False, isolation_level=None)
    away.execute("BEGIN EXCLUSIVE")
    threading.Timer(7, lambda: away.execute("ROLLBACK")).start()  # longer than SQLite itself waits
    study.add(trial(0.5))
    assert len(study.trials()) == 1


def test_a_trial_is_there_once_when_the_connection_broke_after_it_was_written(own_shop, monkeypatch):
    study = create(in_database(own_shop), {})
    broken = []

    def breaks(connection):
        added = connection.exec_driver_sql("SELECT count(*) FROM trials").scalar()
        if added and not broken:
            broken.append(True)
            connection.connection.commit()
            raise OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))

    event.listen(study.storage.engine, "commit", breaks)
    study.add(trial(0.5))
    study.add(trial(0.5))
    assert broken and len(study.storage.get_all_trials(1)) == 3
    assert [t.values[0] for t in study.trials()] == [0.5, 0.5]


def test_a_storage_that_is_no_database_is_told(own_shop):
    settings = own_shop / "ragc.toml"
    settings.write_text(settings.read_text() + '\n[study]\nstorage = "nonsense://x"\n')
    with pytest.raises(SettingsError, match="study"):
        create(Project.open(own_shop), {})
