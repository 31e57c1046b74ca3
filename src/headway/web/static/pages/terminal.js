// A terminal (xterm.js) on a shell of the cluster. Its output is one streamed response of frames (kind, length, bytes; see
// schemas/submission/stream_frames.py), keys and sizes are further requests, one after the other.
"use strict";
(() => {
  const box = document.getElementById("terminal");
  if (!box) return;
  const state = document.getElementById("terminal-state"), again = document.getElementById("terminal-again");
  const OUT = 0, ERR = 1, CODE = 2, ERROR = 3, HEAD = 5, MOST_KEYS = 65536, SCROLLBACK = 5000;

  // The policy of the page admits style sheets with its nonce only.
  const make = document.createElement.bind(document);
  document.createElement = (name, ...more) => {
    const made = make(name, ...more);
    if (name === "style") made.nonce = box.dataset.nonce;
    return made;
  };

  function theme() {
    const seen = getComputedStyle(box), accent = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    const probe = make("span");
    probe.style.color = accent;
    box.append(probe);
    const cursor = getComputedStyle(probe).color;
    probe.remove();
    return { background: seen.backgroundColor, foreground: seen.color, cursor, cursorAccent: seen.backgroundColor, selectionBackground: cursor, selectionForeground: seen.backgroundColor };
  }

  const terminal = new Terminal({
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches, fontSize: 13, scrollback: SCROLLBACK, minimumContrastRatio: 4.5,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"), theme: theme(),
  });
  const fit = new FitAddon.FitAddon();
  terminal.loadAddon(fit);
  terminal.open(box);
  fit.fit();
  const repaint = () => { terminal.options.theme = theme(); };
  new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

  // With it, xterm.js keeps the lines as text for screen readers, and ignores what keyboards of phones insert: so it is a choice.
  const reader = document.getElementById("terminal-reader");
  function readAloud(on) {
    terminal.options.screenReaderMode = on;
    reader.setAttribute("aria-pressed", on);
    try { localStorage.setItem("terminal-reader", on ? "1" : ""); } catch { /* it is kept for this page only */ }
  }
  reader.addEventListener("click", () => readAloud(reader.getAttribute("aria-pressed") !== "true"));
  try { if (localStorage.getItem("terminal-reader")) readAloud(true); } catch { /* the browser keeps nothing */ }

  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== "F6" || !event.shiftKey) return true;
    if (event.type === "keydown") { terminal.blur(); (again.hidden ? document.getElementById("main") : again).focus(); }
    return false;
  });

  let id = "", ready = false, waiting = [], sending = false, size = null;

  function say(text, ended) {
    state.textContent = text;
    again.hidden = !ended;
    if (ended) { id = ""; ready = false; waiting = []; size = null; terminal.options.cursorBlink = false; }
  }

  // Sends sizes and keys in the order in which they came; keys that come meanwhile go together.
  async function send() {
    if (sending || !ready) return;  // what is typed before the shell is there waits
    sending = true;
    while (id && (size || waiting.length)) {
      const to = `${box.dataset.address}/${id}`;
      let sent;
      if (size) {
        const body = JSON.stringify(size);
        size = null;
        sent = fetch(`${to}/size`, { method: "PUT", headers: { "content-type": "application/json" }, body });
      } else {
        const body = new Blob(waiting.splice(0));
        sent = fetch(`${to}/input`, { method: "POST", headers: { "content-type": "application/octet-stream" }, body });
      }
      try { await sent; } catch { break; }  // the stream of the output says why
    }
    sending = false;
  }

  function type(bytes) {
    if (!id) return;
    for (let at = 0; at < bytes.length; at += MOST_KEYS) waiting.push(bytes.subarray(at, at + MOST_KEYS));
    send();
  }

  const encoder = new TextEncoder();
  terminal.onData((keys) => type(encoder.encode(keys)));
  terminal.onBinary((keys) => type(Uint8Array.from(keys, (one) => one.charCodeAt(0))));
  terminal.onResize(({ rows, cols }) => { if (id) { size = { rows, columns: cols }; send(); } });
  new ResizeObserver(() => fit.fit()).observe(box);

  function sentence(problem) {
    const said = problem.detail || problem.message || "The terminal could not be opened";
    return `${said[0].toUpperCase()}${said.slice(1)}.${problem.hint ? ` ${problem.hint[0].toUpperCase()}${problem.hint.slice(1)}.` : ""}`;
  }

  // Reads frames until the last one. Returns what the state line says then.
  async function read(body) {
    const reader = body.getReader(), text = new TextDecoder();
    let left = new Uint8Array(0);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "The connection was closed.";
      const all = new Uint8Array(left.length + value.length);
      all.set(left);
      all.set(value, left.length);
      let at = 0;
      while (all.length - at >= HEAD) {
        const length = new DataView(all.buffer, at + 1).getUint32(0);
        if (all.length - at < HEAD + length) break;
        const kind = all[at], data = all.subarray(at + HEAD, at + HEAD + length);
        at += HEAD + length;
        if (kind === OUT || kind === ERR) {
          if (state.dataset.open !== id) { state.dataset.open = id; say("Connected.", false); }
          await new Promise((drawn) => terminal.write(data, drawn));  // a command that floods waits for the screen
        } else if (kind === CODE) return text.decode(data) === "0" ? "The shell has ended." : `The shell has ended with code ${text.decode(data)}.`;
        else if (kind === ERROR) return sentence(JSON.parse(text.decode(data)));
      }
      left = all.subarray(at);
    }
  }

  async function open() {
    say("Connecting …", false);
    terminal.reset();
    terminal.focus();
    id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");
    const request = { input: id, job: box.dataset.job, node: box.dataset.node, rows: terminal.rows, columns: terminal.cols };
    let words;
    try {
      const answer = await fetch(box.dataset.address, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(request) });
      ready = answer.ok;
      send();
      words = answer.ok ? await read(answer.body) : sentence(await answer.json());
    } catch { words = "The server does not answer."; }
    say(words, true);
  }

  again.addEventListener("click", open);
  open();
})();
