"""A cap on money needs a price."""

import pytest

from optimize.compiler import compile_project
from program.errors import BudgetError
from program.settings import FILE, Project


def test_a_cap_on_money_is_refused_for_a_model_whose_price_nobody_knows(own_shop):
    text = (own_shop / FILE).read_text()
    (own_shop / FILE).write_text(f'{text}\n[models]\nwrite = "openai/nobody-knows-it"\n')
    with pytest.raises(BudgetError, match="not known") as refused:
        compile_project(Project.open(own_shop), trials=1, max_usd=1.0)
    assert "usd_in" in refused.value.mend
