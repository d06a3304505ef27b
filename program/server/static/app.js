"use strict";
// The pages ask, compare and review. Whatever a document, a question or an answer says is text: nothing here writes HTML.

const one = (selector, root = document) => root.querySelector(selector);
const OUTCOMES = JSON.parse(document.body.dataset.outcomes);
const UNREACHABLE = "The server cannot be reached. Ask again in a moment.";
const FAILED = "Something that the answer needs failed. Ask again in a moment, or tell whoever runs this server.";
const makeElement = (name, textContent, more) => Object.assign(document.createElement(name), { textContent, ...more });
const clone = (id) => one(`#${id}`).content.firstElementChild.cloneNode(true);

async function post(path, body) {
  const response = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  }).catch(() => { throw new Error(UNREACHABLE); });
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
    const mark = makeElement("button", part, { type: "button", className: "mark" });
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
function showAnswer(root, { text, citations, outcome }) {
  const byNumber = new Map(citations.map((citation) => {
    const details = clone("citation");
    one("summary", details).textContent = `[${citation.n}] ${citation.title}`;
    one(".where", details).textContent = [citation.id, ...(citation.copies ?? [])].join(" · ");
    const letters = Array.from(citation.text ?? "");  // places count characters, JavaScript's strings UTF-16 units
    let end = 0;
    for (const [first, last] of citation.quotes ?? []) {
      const start = Math.max(first, end);
      if (last <= start) continue;
      const mark = makeElement("mark", letters.slice(start, last).join(""));
      one(".passage", details).append(letters.slice(end, start).join(""), mark);
      end = last;
    }
    one(".passage", details).append(letters.slice(end).join(""));
    return [citation.n, details];
  }));
  writeText(one(".text", root), outcome === "failed" ? FAILED : text, byNumber);
  one(".citations", root).replaceChildren(...byNumber.values());
}

/** Yield the chunks of a stream of server-sent events, until it ends or breaks off. */
async function* readChunks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let text; (text = (await reader.read().catch(() => ({}))).value) !== undefined;) {
    const events = (rest + text).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

/** Say in a line how it goes, or what went wrong. */
function say(line, text, isProblem = false) {
  line.textContent = text;
  line.classList.toggle("problem", isProblem);
}

/** Send the question of a form, by Enter too, unless it is empty or another is under way; one that fails is kept. */
function listenForQuestion(form, send) {
  const question = one("#question"), submit = one("button.main", form);
  question.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = question.value.trim();
    if (submit.disabled) return;
    question.value = asked && question.value;
    if (!question.reportValidity()) return;
    submit.disabled = true;
    try {
      await send(asked, question);
    } finally {
      submit.disabled = false;
    }
  });
}

function startAsking(form) {
  let messages = [];
  const log = one("#log"), examples = one("#examples") ?? document.createElement("div");
  one("#anew").addEventListener("click", () => {
    messages = [];
    log.replaceChildren();
    examples.hidden = false;
    one("#question").focus();
  });
  for (const root of [log, examples]) root.addEventListener("click", ({ target }) => {
    if (!target.matches(".suggestion")) return;
    one("#question").value = target.textContent;
    form.requestSubmit();
  });
  listenForQuestion(form, async (content, question) => {
    examples.hidden = true;
    for (const options of log.querySelectorAll(".options")) options.hidden = true;  // of a question back that is answered
    const turn = clone("turn"), turns = messages;  // a reply that comes after "New conversation" is of the old one
    one("h2", turn).textContent = content;
    log.append(turn);
    turn.scrollIntoView({ block: "nearest" });
    const asked = { role: "user", content };
    question.value = "";
    question.focus();
    try {
      const answer = await streamAnswer(turn, [...turns, asked], one("#model").value);
      finishTurn(turn, answer);
      if (answer.outcome !== "failed") turns.push(asked, { role: "assistant", content: answer.text });
    } catch (error) {
      say(one(".status", turn), error.message, true);
      one(".text", turn).textContent = "";  // a draft that nobody checked
      if (turns === messages) question.value ||= content;
    } finally {
      turn.ariaBusy = "false";
      turn.scrollIntoView({ block: "start" });
    }
  });
}

async function streamAnswer(turn, messages, model) {
  const options = { stream: true, stream_options: { include_drafts: true } };
  const status = one(".status", turn);
  say(status, "Looking it up …");
  let text = "", answer;
  for await (const chunk of readChunks(await post("/v1/chat/completions", { model, messages, ...options }))) {
    if (chunk.error) throw new Error(chunk.error.message);
    const delta = chunk.choices[0].delta;
    if (delta.reasoning_content) say(status, delta.reasoning_content);
    if (chunk.withdrawn) text = "";
    text += delta.content ?? "";
    one(".text", turn).textContent = text;
    if (chunk.trace_id) answer = chunk;
  }
  if (!answer) throw new Error(UNREACHABLE);
  return { ...answer, text };
}

function finishTurn(turn, answer) {
  const reviewed = answer.reviewed ? [`reviewed ${answer.reviewed.at.slice(0, 10)}`.trim()] : [];
  const lacking = answer.degraded.length && answer.outcome !== "failed" ? ["something did not work"] : [];
  say(one(".status", turn), [OUTCOMES[answer.outcome], ...reviewed, ...lacking].join(" · "), answer.outcome === "failed");
  showAnswer(turn, answer);
  one(".options", turn).hidden = !answer.options?.length;
  one(".options", turn).replaceChildren(...(answer.options ?? []).map((text) => makeElement("button", text, { type: "button", className: "suggestion" })));
  one(".way", turn).hidden = false;
  one(".way ol", turn).replaceChildren(...answer.way.map((note) => makeElement("li", note)));
  one(".way .where", turn).textContent = `version ${answer.version || "uncompiled"} · trace ${answer.trace_id}`;
  const thumbs = one(".thumbs", turn), correct = one(".correct", turn), said = one(".said", turn);
  thumbs.hidden = false;
  const send = async (verdict, corrected, thanks) => {
    try {
      await post("/v1/feedback", { trace_id: answer.trace_id, verdict, corrected });
    } catch (error) {
      return say(said, error.message, true);
    }
    say(said, thanks);
    for (const thumb of thumbs.children) thumb.setAttribute("aria-pressed", String(thumb.value === verdict));
    correct.hidden = verdict !== "wrong" || thanks !== "";
    (correct.hidden ? thumbs.querySelector("[aria-pressed=true]") : one("textarea", correct)).focus();
  };
  thumbs.addEventListener("click", ({ target }) => target.value && send(target.value, "", target.value === "right" ? "Thank you." : ""));
  correct.addEventListener("submit", (event) => {
    event.preventDefault();
    send("wrong", one("textarea", correct).value, "Thank you.");
  });
}

function startComparing(form) {
  const progress = one("#progress"), sides = one("#sides"), votes = one("#votes");
  let pair = "";
  listenForQuestion(form, async (question) => {
    sides.hidden = votes.hidden = true;
    say(progress, "Both are looking it up …");
    const versions = [one("#one").value, one("#other").value];
    try {
      const found = await (await post("/compare", { question, versions })).json();
      const [first, second] = found.answers, differ = first.text !== second.text || first.outcome !== second.outcome;
      pair = found.pair;
      [...sides.children].forEach((side, n) => {
        showAnswer(side, found.answers[n]);
        one(":scope > .where", side).textContent = OUTCOMES[found.answers[n].outcome];
      });
      say(progress, differ ? "Which answer is better?" : "Both answer alike: there is nothing to vote on.");
      sides.hidden = false;
      votes.hidden = !differ;
      progress.focus();  // on no button, for an impatient Enter would vote
    } catch (error) {
      say(progress, error.message, true);
    }
  });
  votes.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    votes.hidden = true;
    const preferred = button.value === "" ? null : Number(button.value);
    try {
      const { versions } = await (await post("/compare/vote", { pair, preferred })).json();
      say(progress, `Recorded. Answer 1 was ${versions[0]}, answer 2 was ${versions[1]}.`);
      one("#question").focus();
    } catch (error) {
      say(progress, error.message, true);
      votes.hidden = false;
      button.focus();
    }
  });
  listenForKeys(votes);
}

function startReviewing(form) {
  const began = Date.now();
  form.addEventListener("submit", () => { form.seconds.value = ((Date.now() - began) / 1000).toFixed(1); });
  const choose = (event) => {
    const { target, key } = event;
    if (!target.classList.contains("piece") || ![undefined, "Enter", " "].includes(key)) return;
    event.preventDefault();
    form.fact.value = target.textContent.trim();
    for (const box of form.querySelectorAll("[name=evidence]")) box.checked = box.closest(".evidence").contains(target);
    for (const piece of form.querySelectorAll(".piece")) piece.setAttribute("aria-pressed", String(piece === target));
  };
  form.addEventListener("click", choose);
  form.addEventListener("keydown", choose);
  listenForKeys(form);
}

/** Press the button whose <kbd> has the key's name, unless somebody writes or holds the key down. */
function listenForKeys(root) {
  document.addEventListener("keydown", (event) => {
    const writes = event.target.matches("textarea, select, input:not([type=checkbox])");
    if (root.hidden || writes || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    [...root.querySelectorAll("kbd")].find((kbd) => kbd.textContent === event.key)?.parentElement.click();
  });
}

for (const [id, start] of [["ask", startAsking], ["compare", startComparing], ["review", startReviewing]]) {
  const form = one(`form#${id}`);
  if (form) start(form);
}
