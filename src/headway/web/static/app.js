// Times that run on, and the warning when the server falls silent. Everything else is HTML from the server.
"use strict";
(() => {
  const QUIET_S = 30; // three pulses
  let ahead = 0; // this clock minus the server's, in seconds
  let heard = performance.now();
  let held = 0; // when nothing could come because this page did not ask: it was hidden, or in use
  let broken = false;

  const pad = (n) => String(n).padStart(2, "0");
  const seconds = () => Date.now() / 1000 - ahead;

  // As words.duration on the server: two figures at most.
  function duration(value) {
    const s = Math.max(0, Math.floor(value));
    const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
    if (d) return `${d}d ${h}h`;
    if (h) return `${h}h ${pad(m)}m`;
    return m ? `${m}m ${pad(s % 60)}s` : `${s}s`;
  }

  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  // Moments in the reader's own zone: [data-clock] with the date unless it is today's, [data-day] with the date always.
  let today = "";
  function clocks(root) {
    const now = new Date(seconds() * 1000).toDateString();
    if (now !== today) { today = now; root = document; } // what was written yesterday gets its date
    for (const time of root.querySelectorAll("[data-clock], [data-day]")) {
      const at = new Date(Number(time.dataset.clock ?? time.dataset.day) * 1000);
      if (time.dataset.clock && at.toDateString() === today) write(time, `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`);
      else write(time, `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}`);
    }
  }

  function setOffset() {
    const pulse = document.querySelector("[data-now]");
    if (pulse) ahead = Date.now() / 1000 - Number(pulse.dataset.now);
  }

  function tick() {
    for (const element of document.querySelectorAll("[data-since]")) {
      write(element, duration(seconds() - Number(element.dataset.since)));
    }
    const banner = document.getElementById("offline");
    if (!banner || document.hidden) return;
    const now = performance.now(), lives = document.querySelector("[sse-connect], [hx-trigger^='every']") !== null;
    const silent = lives && (broken || now - Math.max(heard, held) > QUIET_S * 1000);
    if (banner.hidden === silent) banner.hidden = !silent;
    document.documentElement.classList.toggle("is-silent", silent);
    if (silent) write(document.getElementById("offline-since"), duration((now - heard) / 1000));
  }

  // A hidden page holds no stream: over HTTP/1.1 a browser has six connections to a server, for all its tabs together.
  // Each stream tells everything when it begins, so nothing is missed. htmx's extension knows it as one EventSource.
  const streams = new Set();
  htmx.createEventSource = (url) => {
    let source = null, told = []; // [kind of event, who is told]
    const stream = {
      get readyState() { return source ? source.readyState : EventSource.CONNECTING; },
      addEventListener(kind, whom) { told.push([kind, whom]); source?.addEventListener(kind, whom); },
      removeEventListener(kind, whom) { told = told.filter((one) => one[0] !== kind || one[1] !== whom); source?.removeEventListener(kind, whom); },
      close() { streams.delete(stream); stream.hide(); },
      hide() { source?.close(); source = null; },
      show() {
        if (source || document.hidden) return;
        source = new EventSource(url);
        source.onopen = (event) => stream.onopen?.(event);
        source.onerror = (event) => {
          if (source.readyState === EventSource.CLOSED) streams.delete(stream); // the extension makes another
          stream.onerror?.(event);
        };
        for (const [kind, whom] of told) source.addEventListener(kind, whom);
      },
    };
    streams.add(stream);
    stream.show();
    return stream;
  };
  document.addEventListener("visibilitychange", () => {
    for (const stream of streams) { if (document.hidden) stream.hide(); else stream.show(); }
    held = performance.now();
    tick();
  });

  // A session that has ended leads to the sign-in page. Text typed here stays, and so does the page.
  let typed = false;
  document.addEventListener("input", (event) => { if (event.target.form?.getAttribute("method")?.toLowerCase() === "post") typed = true; });

  document.addEventListener("htmx:sseOpen", () => { broken = false; heard = performance.now(); tick(); });
  document.addEventListener("htmx:sseError", () => { broken = true; tick(); });
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    heard = performance.now();
    broken = false;
    if (event.target.id === "leave") { // the session ended, or the cluster is gone: the page itself says which
      event.preventDefault();
      if (!typed) location.reload();
    }
  });
  document.addEventListener("htmx:sseMessage", (event) => {
    if (event.target.id === "pulse") setOffset();
    clocks(event.target);
    tick();
  });
  // Other pages ask again every few seconds.
  const polls = (config) => config.verb === "get" && config.elt.matches("[hx-trigger^='every']");
  const refused = (xhr) => xhr.status >= 400 && xhr.getResponseHeader("HX-Reswap") !== null; // by the server, not by a proxy
  document.addEventListener("htmx:sendError", () => { broken = true; tick(); });
  document.addEventListener("htmx:responseError", (event) => {
    const { xhr, requestConfig } = event.detail;
    const over = xhr.status === 401 || [403, 404].includes(xhr.status) && refused(xhr) && polls(requestConfig);
    if (!over) { broken = true; tick(); }
    else if (!typed) location.reload(); // the page itself says why it is over
  });
  // An error is shown where the server says: a proxy's own page of one has no place here. And where a part is asked for and the
  // answer is without it, what there is stays: nothing in its place would end its asking too.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const detail = event.detail, { xhr } = detail, part = detail.requestConfig.elt.getAttribute("hx-select");
    if (xhr.status >= 400) detail.shouldSwap = refused(xhr);
    else if (part && !new DOMParser().parseFromString(detail.serverResponse, "text/html").querySelector(part)) {
      detail.shouldSwap = false;
      detail.isError = true;
    }
  });
  document.addEventListener("htmx:afterOnLoad", (event) => { if (!event.detail.successful) return; broken = false; heard = performance.now(); tick(); });
  document.addEventListener("htmx:afterSettle", () => { setOffset(); clocks(document); tick(); });

  // Updates wait while the user reads a menu, answers a question or fills in a field of the part it is for; also
  // what was asked for before they began.
  function waits({ requestConfig, target }) {
    if (!polls(requestConfig)) return false;
    const fills = document.activeElement?.matches("input, select, textarea") && target.contains(document.activeElement);
    if (!fills && !document.querySelector(":popover-open")) return false;
    held = performance.now();
    return true;
  }
  document.addEventListener("htmx:beforeRequest", (event) => { if (waits(event.detail)) event.preventDefault(); });
  document.addEventListener("htmx:beforeSwap", (event) => { if (waits(event.detail)) event.detail.shouldSwap = false; });

  // A part that was brought up to date holds other elements: the same link or button has the focus again, where htmx, which
  // goes by ids alone, has not seen to it.
  let focused = null; // {what it was, what tells it from others, its place among those alike}
  const signs = (one) => ["href", "name", "value", "popovertarget", "aria-label"].map((key) => one.getAttribute(key)).concat(one.form?.action).join(" ");
  const alike = (tag, said) => [...document.querySelectorAll(tag)].filter((one) => signs(one) === said);
  for (const kind of ["htmx:beforeSwap", "htmx:sseBeforeMessage"]) document.addEventListener(kind, () => {
    const was = document.activeElement;
    if (was && was !== document.body) focused = { was, said: signs(was), place: alike(was.tagName, signs(was)).indexOf(was) };
  });
  for (const kind of ["htmx:afterSettle", "htmx:sseMessage"]) document.addEventListener(kind, () => {
    if (!focused || focused.was.isConnected || document.activeElement !== document.body) return;
    alike(focused.was.tagName, focused.said)[focused.place]?.focus({ preventScroll: true });
    focused = null;
  });

  // A part of the page that holds an open question is brought up to date when the question is answered or left.
  const kept = new Map();
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const part = event.target, open = part.querySelector(":popover-open");
    if (!open) return;
    event.preventDefault();
    kept.set(part, event.detail.data);
    // The event of its opening may still be on its way: only that of its closing counts.
    open.addEventListener("toggle", (toggled) => {
      if (toggled.newState !== "closed" || !kept.has(part)) return;
      const text = kept.get(part);
      kept.delete(part);
      htmx.swap(part, text, { swapStyle: "innerHTML" });
    });
  });

  // Messages in the corner: closed by hand, or gone after a while unless they are bad news.
  const GONE_S = 8;
  function toasts() {
    for (const toast of document.querySelectorAll(".toast:not([data-seen])")) {
      toast.dataset.seen = "";
      if (!toast.classList.contains("is-bad")) setTimeout(() => toast.remove(), GONE_S * 1000);
    }
  }
  document.addEventListener("click", (event) => event.target.closest("[data-close]")?.closest(".toast")?.remove());
  document.addEventListener("htmx:afterSwap", toasts);

  // On a phone the tabs are a row to be pushed: where one is, is in sight. Not by scrollIntoView, from which some browsers let
  // the Tab key go on.
  for (const here of document.querySelectorAll(".tabs [aria-current]")) {
    const row = here.closest(".tabs");
    const past = here.getBoundingClientRect().right - row.getBoundingClientRect().right;
    if (past > 0) row.scrollLeft += past;
  }

  // A form that was sent is not sent again by a second click: until another page comes, or something in it is changed. What a
  // browser finds invalid is not sent and says no "submit"; what a script sends itself (htmx) has been prevented by then.
  const sent = new Map(); // form -> gives its button back
  document.addEventListener("submit", (event) => {
    const form = event.target, button = event.submitter;
    if (event.defaultPrevented || form.getAttribute("method")?.toLowerCase() !== "post") return;
    if (sent.has(form)) { event.preventDefault(); return; }
    const words = button ? [...button.childNodes] : [];
    sent.set(form, () => { button?.replaceChildren(...words); button?.removeAttribute("aria-busy"); });
    if (button?.dataset.busy) button.replaceChildren(button.dataset.busy);
    button?.setAttribute("aria-busy", "true");
  });
  function release(form) {
    sent.get(form)?.();
    sent.delete(form);
  }
  for (const kind of ["input", "change"]) document.addEventListener(kind, (event) => release(event.target.form));
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    for (const form of [...sent.keys()]) release(form);
    // The page as it was, brought back: what is sent from it now is a new request.
    for (const one of document.querySelectorAll("input[name=form_key]")) one.value = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  });

  setOffset();
  toasts();
  clocks(document);
  tick();
  setInterval(tick, 1000);
})();
