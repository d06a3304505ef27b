"""Two examples of every verb, as its help shows them."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, str]] = {
    "init": ("ragc init helpdesk", "ragc init ~/documents"),
    "doctor": ("ragc doctor", "ragc doctor helpdesk --json"),
    "index": ("ragc index helpdesk", "ragc index helpdesk --list"),
    "ask": (
        'ragc ask helpdesk "How long does a refund take?"',
        'ragc ask helpdesk@production "How long does a refund take?" --trace --readers staff',
    ),
    "answers": (
        "ragc answers helpdesk",
        "ragc answers helpdesk --pin 'Do you deliver?' --says 'Yes, to any door.' --cites docs/delivery.md#where",
    ),
    "search": ("ragc search helpdesk refund", 'ragc search helpdesk "who approves a refund" --strategy graph -k 5'),
    "eval": ("ragc eval helpdesk@v2", "ragc eval helpdesk --search --split train,dev -k 2,5,8"),
    "serve": ("ragc serve helpdesk@production", "ragc serve exp-2026-11-refunds --host 0.0.0.0 --port 80"),
    "trace": ("ragc trace helpdesk --review", "ragc trace helpdesk 1f0c9a"),
    "data check": ("ragc data check helpdesk", "ragc data check helpdesk --json"),
    "data split": ("ragc data split helpdesk", "ragc data split helpdesk --again --seed 1"),
    "data import": ("ragc data import wiki hotpot.json --limit 200", "ragc data import helpdesk faq.xlsx --abstain"),
    "data draft": ("ragc data draft helpdesk", "ragc data draft helpdesk --json"),
    "compile": (
        "ragc compile helpdesk --max-calls 800",
        "ragc compile my_pkg.triage:make --data tickets.jsonl --metric my_pkg.triage:score --name triage",
    ),
    "seal": (
        "ragc seal my_pkg.triage:make state.json --data tickets.jsonl --metric my_pkg.triage:score --name triage",
        "ragc seal m:make state.json --data d.jsonl --metric m:score --name triage --parent triage@v2",
    ),
    "ls": ("ragc ls", "ragc ls helpdesk"),
    "show": ("ragc show helpdesk@v2", "ragc show helpdesk@production --json"),
    "verify": ("ragc verify helpdesk@v2", "ragc verify --all"),
    "diff": ("ragc diff helpdesk@v1 helpdesk@v2", "ragc diff helpdesk@production helpdesk@latest --point quality"),
    "promote": (
        "ragc promote helpdesk@v2 --to production --require better",
        "ragc promote helpdesk@v2 --to staging --reason 'to be tried'",
    ),
    "rollback": ("ragc rollback helpdesk", "ragc rollback helpdesk --alias staging --reason 'wrong prices'"),
    "gc": ("ragc gc --keep 5", "ragc gc helpdesk --keep 2 --force"),
    "compare": (
        "ragc compare helpdesk@v1 helpdesk@v2 --html page.html",
        "ragc compare helpdesk@latest --against production --guard wrong:0.02 --md",
    ),
    "experiment start": (
        "ragc experiment start refunds A=helpdesk@v7 B=helpdesk@v8 --primary resolved --max-units 4000",
        "ragc experiment start x A=h@v1 B=h@v2 --primary error --max-units 900 --weights 90,10 --guard 'latency_s<=3'",
    ),
    "experiment report": ("ragc experiment report refunds", "ragc experiment report"),
    "experiment stop": ("ragc experiment stop refunds", "ragc experiment stop refunds --reason 'prices changed'"),
}
