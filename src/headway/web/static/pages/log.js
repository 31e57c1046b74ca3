// A job's log: a window of its last lines that grows as the job writes. The browser keeps at most MOST lines. Earlier lines are
// fetched on demand, and the server searches the whole file.
"use strict";
(() => {
  const box = document.querySelector("[data-log]");
  if (!box) return;
  const MOST = 5000, FIRST = 500, AFTER = 1500, AGAIN_MS = 1000, LONGEST_MS = 15000;
  const OUT = 0, ERROR = 3, SAID = 4, AT = 5, END = 6; // kinds of schemas/stream_frames.py
  const PASSING = ["unreachable", "command_failed", "too_many_tries", "too_many_at_once", "bug"]; // temporary errors
  const pre = document.getElementById("log-text"), state = document.getElementById("log-state");
  const earlier = document.getElementById("log-earlier"), toEnd = document.getElementById("log-end");
  const found = document.getElementById("log-found"), download = document.getElementById("log-download");
  const encoder = new TextEncoder();
  let lines = [], start = 0, end = 0, err = "", atEnd = true, drawn = false;
  let rest = "", decoder = new TextDecoder(), said = ""; // incomplete last line, incomplete character, last line from Headway
  let shown = "", cut = 0; // the drawn text, and how many of its first characters were removed since
  let hit = null; // the line that the search found: offset, text, q, and whether it was scrolled into view

  const address = (path, values) => {
    const query = new URLSearchParams({ ...values, ...(err ? { err: "true" } : {}), ...(box.dataset.task ? { task: box.dataset.task } : {}) }).toString();
    return `${box.dataset.log}${path}${query && `?${query}`}`;
  };
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const fault = (body, status) => Object.assign(new Error(body.detail || body.message || `answer ${status}`), { kind: body.kind });

  async function fetched(path, values, more) {
    const answer = await fetch(address(path, values), more);
    if (!answer.ok) throw fault(await answer.json().catch(() => ({})), answer.status);
    return answer;
  }

  const ask = async (path, values, signal) => (await fetched(path, values, { signal, headers: { accept: "application/json" } })).json();

  // Writes text, never HTML. Appends to the same text node, so that a selection and the scroll position stay.
  function write() {
    const text = lines.join("\n"), stays = shown.slice(cut), node = pre.firstChild;
    if (hit || !stays || pre.childNodes.length !== 1 || !text.startsWith(stays)) pre.replaceChildren(text);
    else {
      if (cut) {
        const height = pre.scrollHeight, top = pre.scrollTop;
        node.deleteData(0, cut);
        pre.scrollTop = top - (height - pre.scrollHeight);
      }
      node.appendData(text.slice(stays.length));
    }
    shown = text;
    cut = 0;
  }

  // Draws at most once per animation frame.
  function draw() {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      const chosen = getSelection(), picks = !chosen.isCollapsed && pre.contains(chosen.anchorNode);
      const stuck = atEnd && !picks && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 60;
      write();
      if (hit) mark();
      if (stuck) pre.scrollTop = pre.scrollHeight;
      earlier.hidden = start <= 0;
      toEnd.hidden = atEnd;
      pre.dataset.lines = String(lines.length);
    });
  }

  // Returns the line that begins with the found text and is nearest to its offset. Offsets are exact only for valid UTF-8.
  function place() {
    let at = start, from = 0, best = null, holds = null;
    for (const line of lines) {
      const next = at + encoder.encode(line).length + 1, off = Math.abs(at - hit.offset);
      if (line.startsWith(hit.text) && off < (best?.off ?? Infinity)) best = { line, from, off };
      if (at <= hit.offset && hit.offset < next) holds = { line, from };
      at = next;
      from += line.length + 1;
    }
    return best || holds;
  }

  function mark() {
    const where = place();
    if (!where) return;
    const at = where.line.toLowerCase().indexOf(hit.q.toLowerCase());
    const text = pre.firstChild.splitText(where.from + Math.max(at, 0)), shown = document.createElement("mark");
    text.splitText(at < 0 ? where.line.length : hit.q.length);
    text.replaceWith(shown);
    shown.append(text);
    if (!hit.seen) shown.scrollIntoView({ block: "center" });
    hit.seen = true;
  }

  const split = (text) => { const parts = text.split("\n"); if (parts.at(-1) === "") parts.pop(); return parts; };

  // Shows the end of the log and follows it until it has ended; reconnects after an error and continues at the same byte. A new
  // call ends the previous one.
  function tail() {
    stop();
    begun = false;
    hit = null;
    goOn();
  }

  let begun = false; // whether the first window was read
  let stopper = null; // AbortController of the followed stream
  let rests = false; // whether to continue when the page is shown again
  function stop() { stopper?.abort(); stopper = null; rests = false; }

  async function goOn() {
    rests = document.hidden; // like streams in app.js
    if (rests) return;
    const mine = stopper = new AbortController();
    await untilEnd(mine.signal);
    if (stopper === mine) stopper = null;
  }

  async function untilEnd(signal) {
    let wait = AGAIN_MS;
    while (!signal.aborted) {
      try {
        if (!begun) await begin(signal);
        begun = true;
        if (await follow(signal, () => { wait = AGAIN_MS; })) { say("complete"); return; }
        if (signal.aborted) return;
        say("the connection broke; trying again");
      } catch (error) {
        if (signal.aborted) return;
        say(error.kind ? error.message : "the connection broke; trying again");
        if (error.kind && !PASSING.includes(error.kind)) return;
      }
      await new Promise((done) => { signal.addEventListener("abort", done); setTimeout(done, wait); });
      wait = Math.min(2 * wait, LONGEST_MS);
    }
  }

  async function begin(signal) {
    const part = await ask("/part", { lines: FIRST }, signal).catch((error) => {
      if (error.kind !== "not_found") throw error; // the stream then shows what it waits for
      return { text: "", start: 0, end: 0 };
    });
    lines = split(part.text);
    ({ start, end } = part);
    rest = part.text.endsWith("\n") ? "" : lines.at(-1) ?? "";
    decoder = new TextDecoder();
    said = "";
    atEnd = true;
    write();
    pre.scrollTop = pre.scrollHeight;
    draw();
  }

  // Returns true if the log has ended, false if only the connection has.
  async function follow(signal, heard) {
    const answer = await fetched("", { follow: "true", frames: "true", start: end }, { signal });
    let placed = null; // whether the data has offsets in one file; the logs of all tasks of an array are always sent from their beginnings
    say("live");
    for await (const [kind, data] of frames(answer.body.getReader())) {
      if (signal.aborted) return false;
      heard();
      if (placed === null) {
        placed = kind === AT;
        if (!placed) { lines = []; rest = ""; start = 0; }
      }
      if (kind === END) return true;
      if (kind === ERROR) throw fault(JSON.parse(new TextDecoder().decode(data)));
      if (kind === AT) moved(Number(new TextDecoder().decode(data)));
      else if (kind === OUT) grown(data);
      else if (kind === SAID) told(new TextDecoder().decode(data), placed);
      trim();
      draw();
    }
    return false;
  }

  function moved(at) {
    if (at === end) return;
    start = end = at; // the file was truncated: only this page still has the earlier content
    rest = "";
    decoder = new TextDecoder();
  }

  function grown(data) {
    end += data.length;
    const parts = (rest + decoder.decode(data, { stream: true })).split("\n");
    if (rest !== "") lines.pop(); // the incomplete line that is shown
    rest = parts.pop();
    for (const line of parts) lines.push(line);
    if (rest !== "") lines.push(rest);
  }

  function told(text, placed) {
    if (placed && text === said) return; // after a reconnect the server repeats why it waits
    said = text;
    rest = "";
    for (const line of split(text)) lines.push(line);
  }

  async function* frames(reader) {
    let held = new Uint8Array();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const joined = new Uint8Array(held.length + value.length);
      joined.set(held);
      joined.set(value, held.length);
      let at = 0;
      while (joined.length - at >= 5) {
        const next = at + 5 + new DataView(joined.buffer, at + 1).getUint32(0);
        if (joined.length < next) break;
        yield [joined[at], joined.subarray(at + 5, next)];
        at = next;
      }
      held = joined.subarray(at);
    }
  }

  function trim() {
    if (lines.length <= MOST) return;
    const gone = lines.splice(0, lines.length - MOST + MOST / 10); // removes a tenth more at once, so that not every line moves the text
    for (const line of gone) {
      start += encoder.encode(line).length + 1;
      cut += line.length + 1;
    }
  }

  earlier.addEventListener("click", async () => {
    const part = await ask("/part", { before: start, lines: FIRST }).catch((error) => { say(error.message); return null; });
    if (!part) return;
    const height = pre.scrollHeight;
    lines = split(part.text).concat(lines);
    start = part.start;
    if (lines.length > MOST) { stop(); say("paused"); lines.length = MOST; atEnd = false; }
    write();
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
      for (const one of answer.found) found.append(choice(one, q));
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

  function choice(one, q) {
    const button = document.createElement("button"), number = document.createElement("span"), text = document.createElement("code");
    button.type = "button";
    number.className = "soft num";
    number.textContent = one.line.toLocaleString("en");
    text.textContent = one.text;
    button.append(number, text);
    button.addEventListener("click", async () => {
      const before = one.offset + encoder.encode(one.text).length + AFTER; // enough bytes that the part contains the hit
      const part = await ask("/part", { before, lines: AFTER + FIRST }).catch((error) => { say(error.message); return null; });
      if (!part) return;
      stop();
      say("paused");
      lines = split(part.text);
      ({ start, end } = part);
      atEnd = false;
      hit = { offset: one.offset, text: one.text.replace(/\uFFFD+$/, ""), q, seen: false }; // the last character may be incomplete
      draw();
    });
    return button;
  }

  for (const button of box.querySelectorAll("[data-err]")) {
    button.addEventListener("click", () => {
      err = button.dataset.err;
      for (const other of box.querySelectorAll("[data-err]")) other.setAttribute("aria-pressed", String(other === button));
      download.href = address("", {});
      tail();
    });
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { if (rests) goOn(); }
    else if (stopper) {
      stop();
      rests = true;
    }
  });
  tail();
})();
