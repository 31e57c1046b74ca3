// A job's log: a window of its last lines that grows as the job writes. The browser never holds more than MOST lines; what
// lies before is fetched when asked for, and the whole file is searched on the server.
"use strict";
(() => {
  const box = document.querySelector("[data-log]");
  if (!box) return;
  const MOST = 5000, FIRST = 500, AFTER = 1500, AGAIN_MS = 3000;
  const pre = document.getElementById("log-text"), state = document.getElementById("log-state");
  const earlier = document.getElementById("log-earlier"), toEnd = document.getElementById("log-end");
  const found = document.getElementById("log-found"), download = document.getElementById("log-download");
  let lines = [], start = 0, end = 0, size = 0, err = "", atEnd = true, drawn = false, word = "";

  const address = (path, values) => {
    const query = new URLSearchParams(Object.entries({ ...values, ...(err ? { err: "true" } : {}) }));
    return `${box.dataset.log}${path}?${query}`;
  };
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };

  async function ask(path, values) {
    const answer = await fetch(address(path, values), { headers: { accept: "application/json" } });
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw Object.assign(new Error(body.detail || body.message || `answer ${answer.status}`), { status: answer.status });
    return body;
  }

  // Text only, never HTML. One drawing a frame, however fast lines come.
  function draw() {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      const stuck = atEnd && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 60;
      pre.replaceChildren(lines.join("\n"));
      if (word) mark();
      if (stuck) pre.scrollTop = pre.scrollHeight;
      earlier.hidden = start <= 0;
      toEnd.hidden = atEnd;
      pre.dataset.lines = String(lines.length);
    });
  }

  function mark() {
    const at = pre.textContent.toLowerCase().indexOf(word.toLowerCase());
    if (at < 0) return;
    const text = pre.firstChild, hit = text.splitText(at);
    hit.splitText(word.length);
    const shown = document.createElement("mark");
    hit.replaceWith(shown);
    shown.append(hit);
    shown.scrollIntoView({ block: "center" });
  }

  const split = (text) => { const parts = text.split("\n"); if (parts.at(-1) === "") parts.pop(); return parts; };

  async function tail() {
    stop();
    word = "";
    let part = { text: "", start: 0, end: 0, size: 0 };
    try {
      part = await ask("/part", { lines: FIRST });
      say("");
    } catch (error) {
      if (error.status !== 404) { say(error.message); return; }
    }
    lines = split(part.text);
    ({ start, end, size } = part);
    atEnd = true;
    pre.replaceChildren(lines.join("\n"));
    pre.scrollTop = pre.scrollHeight;
    draw();
    follow();
  }

  let stopper = null;
  function stop() { stopper?.abort(); stopper = null; }

  async function follow() {
    const mine = stopper = new AbortController();
    const decoder = new TextDecoder();
    let rest = "";
    try {
      const answer = await fetch(address("", { follow: "true", start: end }), { signal: mine.signal });
      if (!answer.ok) { const body = await answer.json().catch(() => ({})); say(body.detail || body.message || ""); return; }
      say("live");
      for await (const piece of chunks(answer.body.getReader())) {
        end += piece.length;
        const parts = (rest + decoder.decode(piece, { stream: true })).split("\n");
        if (rest !== "") lines.pop(); // the half line that was shown
        rest = parts.pop();
        for (const line of parts) lines.push(line);
        if (rest !== "") lines.push(rest);
        trim();
        draw();
      }
      say("complete");
    } catch (error) {
      if (mine.signal.aborted) return;
      say("the connection broke; again in a moment");
      setTimeout(() => { if (stopper === mine) tail(); }, AGAIN_MS);
    }
  }

  async function* chunks(reader) {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  }

  function trim() {
    if (lines.length <= MOST) return;
    const gone = lines.splice(0, lines.length - MOST + MOST / 10); // a tenth more at once, or each line would move all
    const bytes = new TextEncoder();
    for (const line of gone) start += bytes.encode(line).length + 1;
  }

  earlier.addEventListener("click", async () => {
    const part = await ask("/part", { before: start, lines: FIRST }).catch((error) => { say(error.message); return null; });
    if (!part) return;
    const height = pre.scrollHeight;
    lines = split(part.text).concat(lines);
    start = part.start;
    if (lines.length > MOST) { stop(); say("paused"); lines.length = MOST; atEnd = false; }
    pre.replaceChildren(lines.join("\n"));
    pre.scrollTop += pre.scrollHeight - height;
    draw();
  });
  toEnd.addEventListener("click", tail);

  box.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const q = event.target.elements.q.value;
    found.hidden = !q;
    if (!q) return;
    found.replaceChildren(paragraph("Searching …"));
    try {
      const answer = await ask("/search", { q });
      const most = answer.more ? " and perhaps more" : "";
      found.replaceChildren(paragraph(answer.found.length ? `${answer.found.length} line${answer.found.length === 1 ? "" : "s"}${most}` : `Nothing${most}`));
      for (const one of answer.found) found.append(hit(one, q));
    } catch (error) {
      found.replaceChildren(paragraph(error.message));
    }
  });

  function paragraph(text) {
    const made = document.createElement("p");
    made.className = "soft";
    made.textContent = text;
    return made;
  }

  function hit(one, q) {
    const button = document.createElement("button"), number = document.createElement("span"), text = document.createElement("code");
    button.type = "button";
    number.className = "soft num";
    number.textContent = one.line.toLocaleString("en");
    text.textContent = one.text;
    button.append(number, text);
    button.addEventListener("click", async () => {
      const bytes = new TextEncoder().encode(one.text).length;
      const part = await ask("/part", { before: one.offset + bytes + AFTER, lines: AFTER + FIRST }); // however short lines are, the hit is among them
      stop();
      say("paused");
      lines = split(part.text);
      ({ start, end } = part);
      atEnd = false;
      word = q;
      draw();
    });
    return button;
  }

  for (const button of box.querySelectorAll("[data-err]")) {
    button.addEventListener("click", () => {
      err = button.dataset.err;
      for (const other of box.querySelectorAll("[data-err]")) other.setAttribute("aria-pressed", String(other === button));
      download.href = err ? `${box.dataset.log}?err=true` : box.dataset.log;
      tail();
    });
  }
  addEventListener("pagehide", stop);
  tail();
})();
