"use strict";
// The pages ask, compare and review. Whatever a document, a question or an answer says is text: nothing here writes HTML.

const one = (selector, root = document) => root.querySelector(selector);
const OUTCOMES = JSON.parse(document.body.dataset.outcomes);
const clone = (id) => one(`#${id}`).content.firstElementChild.cloneNode(true);

async function post(path, body) {
  const response = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  if (!response.ok) {
    const failed = await response.json().catch(() => ({}));
    throw new Error(failed.error?.message ?? `The server answered with status ${response.status}.`);
  }
  return response;
}

/** Write an answer's text, its marks as buttons that open their citation. */
function writeText(target, text, citations) {
  target.replaceChildren(...text.split(/(\[\d{1,3}\])/).map((part) => {
    const n = Number(/^\[(\d+)\]$/.exec(part)?.[1]);
    if (!citations.has(n)) return document.createTextNode(part);
    const mark = Object.assign(document.createElement("button"), { type: "button", className: "mark", textContent: part });
    mark.setAttribute("aria-label", `Citation ${n}`);
    mark.addEventListener("click", () => {
      const details = citations.get(n);
      details.open = true;
      one("summary", details).focus();
    });
    return mark;
  }));
}

/** Show an answer with its citations, the pieces quoted marked in each passage. */
function showAnswer(root, text, citations) {
  const byNumber = new Map(citations.map((citation) => {
    const details = clone("citation");
    one("summary", details).textContent = `[${citation.n}] ${citation.title}`;
    one(".where", details).textContent = [citation.id, citation.reason, ...(citation.copies ?? [])].filter(Boolean).join(" · ");
    const letters = Array.from(citation.text ?? "");  // places count characters, JavaScript's strings UTF-16 units
    let end = 0;
    for (const [first, last] of citation.quotes ?? []) {
      const start = Math.max(first, end);
      if (last <= start) continue;
      const mark = Object.assign(document.createElement("mark"), { textContent: letters.slice(start, last).join("") });
      one(".passage", details).append(letters.slice(end, start).join(""), mark);
      end = last;
    }
    one(".passage", details).append(letters.slice(end).join(""));
    return [citation.n, details];
  }));
  writeText(one(".text", root), text, byNumber);
  one(".citations", root).replaceChildren(...byNumber.values());
}

/** Yield the chunks of a stream of server-sent events. */
async function* readChunks(response) {
  let rest = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + text).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

function startAsking(form) {
  const question = one("#question");
  const messages = [];
  question.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  one("#anew").addEventListener("click", () => {
    messages.length = 0;
    one("#log").replaceChildren();
    question.focus();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const turn = clone("turn");
    one("h2", turn).textContent = question.value;
    one("#log").append(turn);
    turn.scrollIntoView({ block: "nearest" });
    messages.push({ role: "user", content: question.value });
    question.value = "";
    const submit = one("button.main", form);
    submit.disabled = true;
    try {
      messages.push({ role: "assistant", content: await streamAnswer(turn, messages, one("#model").value) });
    } catch (error) {
      messages.pop();
      one(".status", turn).textContent = error.message;
    } finally {
      submit.disabled = false;
      question.focus();
    }
  });
}

async function streamAnswer(turn, messages, model) {
  const options = { stream: true, stream_options: { include_drafts: true } };
  const status = one(".status", turn);
  status.textContent = "Looking it up …";
  let text = "";
  for await (const chunk of readChunks(await post("/v1/chat/completions", { model, messages, ...options }))) {
    if (chunk.error) throw new Error(chunk.error.message);
    const delta = chunk.choices[0].delta;
    if (delta.reasoning_content) status.textContent = delta.reasoning_content;
    if (chunk.withdrawn) text = "";
    text += delta.content ?? "";
    one(".text", turn).textContent = text;
    if (chunk.trace_id) finishTurn(turn, text, chunk);
  }
  return text;
}

function finishTurn(turn, text, answer) {
  const sure = answer.outcome === "answered" ? [`confidence ${answer.confidence.toFixed(2)}`] : [];
  const words = [OUTCOMES[answer.outcome], ...sure, answer.version || "uncompiled", ...answer.degraded];
  one(".status", turn).textContent = words.join(" · ");
  showAnswer(turn, text, answer.citations);
  one(".way", turn).hidden = false;
  one(".way ol", turn).replaceChildren(...answer.way.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
  one(".way .where", turn).textContent = `trace ${answer.trace_id}`;
  const thumbs = one(".thumbs", turn), correct = one(".correct", turn);
  thumbs.hidden = false;
  const send = async (verdict, corrected) => {
    await post("/v1/feedback", { trace_id: answer.trace_id, verdict, corrected });
    for (const thumb of thumbs.children) thumb.setAttribute("aria-pressed", String(thumb.value === verdict));
  };
  thumbs.addEventListener("click", async ({ target }) => {
    if (!target.value) return;
    await send(target.value, "");
    correct.hidden = target.value !== "wrong";
    if (!correct.hidden) one("textarea", correct).focus();
  });
  correct.addEventListener("submit", async (event) => {
    event.preventDefault();
    await send("wrong", one("textarea", correct).value);
    correct.replaceChildren("Thank you.");
  });
}

function startComparing(form) {
  const progress = one("#progress"), sides = one("#sides"), votes = one("#votes");
  let pair = "";
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    sides.hidden = votes.hidden = true;
    progress.textContent = "Both are looking it up …";
    const versions = [one("#one").value, one("#other").value];
    try {
      const found = await (await post("/compare", { question: one("#question").value, versions })).json();
      pair = found.pair;
      [...sides.children].forEach((side, n) => {
        showAnswer(side, found.answers[n].text, found.answers[n].citations);
        one(":scope > .where", side).textContent = OUTCOMES[found.answers[n].outcome];
      });
      progress.textContent = "Which answer is better?";
      sides.hidden = votes.hidden = false;
      one("button", votes).focus();
    } catch (error) {
      progress.textContent = error.message;
    }
  });
  votes.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    votes.hidden = true;
    const preferred = button.value === "" ? null : Number(button.value);
    const vote = await (await post("/compare/vote", { pair, preferred })).json();
    progress.textContent = `Recorded. Answer 1 was ${vote.versions[0]}, answer 2 was ${vote.versions[1]}.`;
    one("#question").focus();
  });
  const keys = { 1: "0", 2: "1", 0: "" };
  listenForKeys((key) => {
    if (!votes.hidden && key in keys) [...votes.children].find((button) => button.value === keys[key]).click();
  });
}

function startReviewing(form) {
  const began = Date.now();
  form.addEventListener("submit", () => { form.seconds.value = ((Date.now() - began) / 1000).toFixed(1); });
  form.addEventListener("click", ({ target }) => {
    if (!target.classList.contains("piece")) return;
    form.fact.value = target.textContent.trim();
    for (const box of form.querySelectorAll("[name=evidence]")) box.checked = box.closest(".evidence").contains(target);
    for (const piece of form.querySelectorAll(".piece")) piece.classList.toggle("chosen", piece === target);
    form.fact.focus();
  });
  const keys = { r: "right", w: "wrong", a: "should_clarify", n: "should_abstain", s: "skip" };
  listenForKeys((key) => {
    if (key in keys) form.requestSubmit(one(`[value=${keys[key]}]`, form));
  });
}

/** Hear single keys, unless somebody writes. */
function listenForKeys(act) {
  document.addEventListener("keydown", (event) => {
    const writes = event.target.matches("textarea, select, input:not([type=checkbox])");
    if (!writes && !event.ctrlKey && !event.metaKey && !event.altKey) act(event.key);
  });
}

for (const [id, start] of [["ask", startAsking], ["compare", startComparing], ["review", startReviewing]]) {
  const form = one(`form#${id}`);
  if (form) start(form);
}
