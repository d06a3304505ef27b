"""A cap on money needs a price."""

import pytest

from optimize.compiler.compile import compile_project
from program import open_program
from program.errors import BudgetError
from program.project import Project
from program.settings import FILE

MODEL = "openai/nobody-knows-it"


def project(folder, extra=""):
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(f'{text}\n{extra}\n[models]\nwrite = "{MODEL}"\npropose = "openai/nor-this"\n')
    return Project.open(folder)


def test_a_cap_on_money_is_refused_for_a_model_whose_price_nobody_knows(own_shop):
    with pytest.raises(BudgetError, match="not known") as refused:
        compile_project(project(own_shop), trials=1, max_usd=1.0)
    assert "usd_in" in refused.value.mend


def test_a_projects_own_cap_on_a_questions_money_is_refused_likewise_when_it_is_opened(own_shop):
    with pytest.raises(BudgetError, match=rf"What {MODEL} costs is not known, so that \[budget\] max_usd") as refused:
        open_program(project(own_shop, "[budget]\nmax_usd = 0.1"))
    assert f'[provider.model."{MODEL}"]' in refused.value.mend


@pytest.mark.parametrize("price", ["usd_in = 0", "usd_in = 1\nusd_out = 2"])
def test_with_a_price_the_cap_is_taken(own_shop, price, caplog):
    capped = project(own_shop, f'[budget]\nmax_usd = 0.1\n[provider.model."{MODEL}"]\n{price}')
    assert open_program(capped).runtime.budget.max_usd == 0.1
    assert "max_usd" not in caplog.text


def test_where_only_the_default_cap_cannot_hold_the_project_opens_and_says_so(own_shop, caplog):
    assert open_program(project(own_shop)).runtime.budget.max_usd
    assert f"What {MODEL} costs is not known, so that [budget] max_usd could not stop it" in caplog.text
