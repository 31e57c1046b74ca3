// A job's log: a window of its last lines that grows as the job writes. The browser keeps at most MOST lines. Earlier lines are
// fetched on demand, and the server searches the whole file.
"use strict";
(() => {
  const box = document.querySelector("[data-log]");
  if (!box) return;
  const MOST = 5000, FIRST = 500, AFTER = 1500, AGAIN_MS = 1000, LONGEST_MS = 15000;
  const MOST_RANKS = 512; // in the list; a line of a number may be no line of a rank
  // The words by which the first error is searched, and the lines among them that state one.
  const ERROR_WORDS = ["error", "traceback", "fatal", "killed"];
  const STATES_ERROR = /\b(error|exception|traceback|fatal|killed|out of memory)\b|[a-z]Error\b/i, NO_ERROR = /\b(0|no) errors?\b|errors? ?[:=] ?0\b/i;
  const OUT = 0, ERROR = 3, SAID = 4, AT = 5, END = 6; // kinds of schemas/stream_frames.py
  const PASSING = ["unreachable", "command_failed", "too_many_tries", "too_many_at_once", "bug"]; // temporary errors
  const { NOTE, isNote, plain, nodes, rank, sense } = window.headwayLogLines;
  const pre = document.getElementById("log-text"), state = document.getElementById("log-state");
  const earlier = document.getElementById("log-earlier"), toEnd = document.getElementById("log-end");
  const found = document.getElementById("log-found"), download = document.getElementById("log-download");
  const encoder = new TextEncoder();
  let lines = [], start = 0, end = 0, err = "", atEnd = true, drawn = false;
  let rest = "", decoder = new TextDecoder(), said = ""; // incomplete last line, incomplete character, last line from Headway
  let shown = [], cut = 0; // the drawn lines as {raw, node}, and how many of the first ones were removed since
  let first = 0, next = 0; // number in the file of the first line and of the next one to be drawn; 0: unknown
  let hit = null; // the line that the search found: offset, text, q, and whether it was scrolled into view
  let matches = [], match = -1, searched = ""; // what the last search found, the chosen one, and the text

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

  // Draws the lines that are new or have changed. Other elements stay, and with them a selection and the scroll position.
  function write() {
    if (cut) {
      const height = pre.scrollHeight, top = pre.scrollTop;
      for (const one of shown.splice(0, cut)) one.node.remove();
      for (const one of shown) one.head = null;
      for (let i = 0; i < shown.length; i += 1) fold(i);
      pre.scrollTop = top - (height - pre.scrollHeight);
      cut = 0;
    }
    const at = shown.length - 1; // only the last drawn line can have grown
    if (at >= 0 && at < lines.length && shown[at].raw !== lines[at]) {
      shown[at].raw = lines[at];
      fill(shown[at]);
      fold(at);
    }
    if (at >= 0 && lines.length > shown.length) shown[at].node.append("\n");
    const added = document.createDocumentFragment();
    for (let i = shown.length; i < lines.length; i += 1) {
      const one = { raw: lines[i], node: document.createElement("span") };
      one.node.className = isNote(one.raw) ? "log-line log-note" : "log-line";
      if (!isNote(one.raw) && next) { one.node.dataset.n = String(next); next += 1; }
      fill(one);
      if (i < lines.length - 1) one.node.append("\n");
      shown.push(one);
      fold(i);
      added.append(one.node);
    }
    pre.append(added);
  }

  function fill(one) {
    one.node.replaceChildren(...nodes(one.raw));
    one.sense = sense(one.raw);
    const of = rank(one.raw);
    if (of === "") delete one.node.dataset.rank;
    else if (of !== one.node.dataset.rank) { one.node.dataset.rank = of; add_rank(of); }
  }

  // Lets a line that says the same as the one before it disappear behind that one, which counts them.
  function fold(i) {
    const one = shown[i], before = shown[i - 1], repeats = Boolean(before && one.sense && one.sense === before.sense);
    if (one.head && one.head !== one) count(one.head, -1); // the line was shorter, and repeated the one before it
    one.node.classList.toggle("is-repeat", repeats);
    one.head = repeats ? before.head : one;
    if (repeats) count(one.head, 1);
    else { one.count = 1; delete one.node.dataset.repeats; }
  }

  function count(head, more) {
    head.count += more;
    if (head.count > 1) head.node.dataset.repeats = `×${head.count}`;
    else delete head.node.dataset.repeats;
  }

  // Adds a rank to the list of ranks, which appears with the second one.
  const ranks = document.getElementById("log-rank"), known = new Set();
  function add_rank(of) {
    if (known.has(of) || known.size >= MOST_RANKS) return;
    known.add(of);
    const option = new Option(`rank ${of}`, of), after = [...ranks.options].find((other) => other.value && Number(other.value) > Number(of));
    ranks.add(option, after ?? null);
    ranks.hidden = known.size < 2;
  }
  ranks.addEventListener("change", show_rank);
  // Only one rule of a style sheet changes, so that all lines of other ranks disappear at once, also those that come later.
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  function show_rank() {
    const of = ranks.value;
    sheet.replaceSync(of === "" ? "" : `#log-text [data-rank]:not([data-rank="${CSS.escape(of)}"]) { display: none; }`);
    pre.classList.toggle("is-one-rank", of !== "");
  }

  // Draws all lines again. `number`: of the first one in the file, 0 if it is unknown.
  function rewrite(number) {
    first = next = number;
    shown = [];
    cut = 0;
    pre.replaceChildren();
    pre.style.setProperty("--digits", String(Math.max(3, String(number + lines.length).length)));
    write();
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

  // Returns the index of the line that begins with the found text and is nearest to its offset. Offsets are exact only for valid UTF-8.
  function place() {
    let at = start, best = null, holds = -1;
    lines.forEach((line, i) => {
      const after = at + encoder.encode(line).length + 1, off = Math.abs(at - hit.offset);
      if (line.startsWith(hit.text) && off < (best?.off ?? Infinity)) best = { i, off };
      if (at <= hit.offset && hit.offset < after) holds = i;
      at = after;
    });
    return best ? best.i : holds;
  }

  function mark() {
    const node = shown[place()]?.node;
    if (!node || node.querySelector("mark")) return;
    if (node.dataset.rank !== ranks.value) { ranks.value = ""; show_rank(); }
    node.classList.remove("is-repeat");
    for (const other of pre.querySelectorAll("mark")) other.replaceWith(...other.childNodes);
    const made = document.createElement("mark"), walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), wanted = hit.q.toLowerCase();
    let text = null, at = -1;
    while (at < 0 && (text = walker.nextNode())) at = text.data.toLowerCase().indexOf(wanted);
    if (at >= 0) {
      const found = text.splitText(at);
      found.splitText(hit.q.length);
      found.replaceWith(made);
      made.append(found);
    } else { // the text goes over several colours, or was overwritten
      made.append(...node.childNodes);
      node.append(made);
    }
    if (!hit.seen) made.scrollIntoView({ block: "center" });
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
      return { text: "", start: 0, end: 0, line: 1 };
    });
    lines = split(part.text);
    ({ start, end } = part);
    rest = part.text.endsWith("\n") ? "" : lines.at(-1) ?? "";
    decoder = new TextDecoder();
    said = "";
    atEnd = true;
    rewrite(start || !part.text ? part.line ?? 0 : 1);
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
        if (!placed) { lines = []; rest = ""; start = 0; rewrite(0); }
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
    next = at ? 0 : 1;
    rest = "";
    decoder = new TextDecoder();
  }

  function grown(data) {
    end += data.length;
    const parts = decoder.decode(data, { stream: true }).split("\n");
    parts[0] = rest + parts[0]; // not split again: a progress bar makes it long
    if (rest !== "") lines.pop(); // the incomplete line that is shown
    rest = parts.pop();
    for (const line of parts) lines.push(line);
    if (rest !== "") lines.push(rest);
  }

  function told(text, placed) {
    if (placed && text === said) return; // after a reconnect the server repeats why it waits
    said = text;
    rest = "";
    for (const line of split(text)) lines.push(NOTE + line);
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
      if (!isNote(line)) start += encoder.encode(line).length + 1;
      cut += 1;
      if (first && !isNote(line)) first += 1;
    }
  }

  earlier.addEventListener("click", async () => {
    const part = await ask("/part", { before: start, lines: FIRST }).catch((error) => { say(error.message); return null; });
    if (!part) return;
    const height = pre.scrollHeight;
    lines = split(part.text).concat(lines);
    start = part.start;
    if (lines.length > MOST) { stop(); say("paused"); lines.length = MOST; atEnd = false; }
    rewrite(part.line);
    pre.scrollTop += pre.scrollHeight - height;
    draw();
  });
  toEnd.addEventListener("click", tail);

  box.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const q = event.target.elements.q.value;
    if (q && q === searched && matches.length) { choose(match + 1); return; } // Enter again goes to the next match
    matches = [];
    match = -1;
    searched = q;
    tell();
    found.hidden = !q;
    if (!q) return;
    found.replaceChildren(paragraph("Searching …"));
    try {
      const answer = await ask("/search", { q });
      const most = answer.more ? " and perhaps more" : "";
      found.replaceChildren(paragraph(answer.found.length ? `${answer.found.length} line${answer.found.length === 1 ? "" : "s"}${most}` : `Nothing${most}`));
      matches = answer.found.map((one) => ({ one, q, button: choice(one) }));
      found.append(...matches.map(({ button }) => button));
      matches.forEach(({ button }, i) => button.addEventListener("click", () => choose(i)));
      tell();
    } catch (error) {
      found.replaceChildren(paragraph(error.message));
    }
  });

  // Finds the first line of the whole log that states an error.
  document.getElementById("log-error").addEventListener("click", async () => {
    matches = [];
    match = -1;
    searched = "";
    tell();
    found.hidden = false;
    found.replaceChildren(paragraph("Searching …"));
    try {
      const answers = [];
      let sure = Infinity; // up to this line no match is missing
      for (const q of ERROR_WORDS) {
        const answer = await ask("/search", { q });
        answers.push(...answer.found.map((one) => ({ one, q })));
        if (answer.more) sure = Math.min(sure, answer.found.at(-1)?.line ?? 0);
      }
      const stated = answers.filter(({ one }) => STATES_ERROR.test(plain(one.text)) && !NO_ERROR.test(plain(one.text)));
      const stating = [...new Map(stated.map((hit) => [hit.one.offset, hit])).values()].sort((a, b) => a.one.offset - b.one.offset);
      const result = stating.length ? `${stating.length} line${stating.length === 1 ? "" : "s"} with errors` : "No line states an error";
      found.replaceChildren(paragraph(sure === Infinity ? result : `${result}. The search stopped early: after line ${sure.toLocaleString("en")} there may be more`));
      matches = stating.map(({ one, q }) => ({ one, q, button: choice(one) }));
      found.append(...matches.map(({ button }) => button));
      matches.forEach(({ button }, i) => button.addEventListener("click", () => choose(i)));
      if (matches.length) choose(0);
    } catch (error) {
      found.replaceChildren(paragraph(error.message));
    }
  });

  const folds = document.getElementById("log-fold");
  folds.addEventListener("click", () => {
    const on = folds.getAttribute("aria-pressed") !== "true";
    folds.setAttribute("aria-pressed", String(on));
    pre.classList.toggle("is-folded", on);
  });

  function paragraph(text) {
    const made = document.createElement("p");
    made.className = "soft";
    made.textContent = text;
    return made;
  }

  function choice(one) {
    const button = document.createElement("button"), number = document.createElement("span"), text = document.createElement("code");
    button.type = "button";
    number.className = "soft num";
    number.textContent = one.line.toLocaleString("en");
    text.textContent = plain(one.text);
    button.append(number, text);
    return button;
  }

  // Writes which match is shown.
  function tell() {
    document.getElementById("log-matches").hidden = !matches.length;
    document.getElementById("log-match").textContent = match < 0 ? "" : `match ${match + 1} of ${matches.length}`;
    matches.forEach(({ button }, i) => button.setAttribute("aria-current", String(i === match)));
  }

  // Shows a match in its part of the log. After the last one comes the first.
  async function choose(number) {
    match = (number + matches.length) % matches.length;
    tell();
    const { one, q, button } = matches[match];
    button.scrollIntoView({ block: "nearest" });
    const before = one.offset + encoder.encode(one.text).length + AFTER; // enough bytes that the part contains the hit
    const part = await ask("/part", { before, lines: AFTER + FIRST }).catch((error) => { say(error.message); return null; });
    if (!part || matches[match]?.one !== one) return;
    stop();
    say("paused");
    lines = split(part.text);
    ({ start, end } = part);
    atEnd = false;
    hit = { offset: one.offset, text: one.text.replace(/\uFFFD+$/, ""), q, seen: false }; // the last character may be incomplete
    rewrite(part.line);
    draw();
  }
  document.getElementById("log-next").addEventListener("click", () => choose(match + 1));
  document.getElementById("log-previous").addEventListener("click", () => choose(match < 0 ? -1 : match - 1));

  const wrap = document.getElementById("log-wrap");
  function wraps(on) {
    wrap.setAttribute("aria-pressed", String(on));
    pre.classList.toggle("is-unwrapped", !on);
  }
  wrap.addEventListener("click", () => {
    const on = wrap.getAttribute("aria-pressed") !== "true";
    wraps(on);
    try { localStorage.setItem("headway-log-wrap", on ? "1" : "0"); } catch { /* storage is blocked */ }
  });
  try { wraps(localStorage.getItem("headway-log-wrap") !== "0"); } catch { /* storage is blocked */ }

  document.getElementById("log-copy").addEventListener("click", async () => {
    const text = lines.map(plain).join("\n");
    say(await copied(text) ? `copied ${lines.length.toLocaleString("en")} line${lines.length === 1 ? "" : "s"}` : "the browser does not allow to copy");
  });

  async function copied(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* over plain HTTP there is no clipboard */ }
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr";
    box.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
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
