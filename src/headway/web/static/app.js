// Running clocks, updates of page parts, and the warning when the server does not answer. All content is HTML from the server.
"use strict";
(() => {
  const QUIET_S = 30; // three intervals between pulses of the server
  let ahead = 0; // this clock minus the server's, in seconds
  let heard = performance.now();
  let held = 0; // when this page last did not request updates, because it was hidden or in use
  let broken = false;
  const SESSION_IDLE_S = 12 * 3600; // as in domain/access/session_validity.py
  const opened = Date.now();
  const signedIn = document.querySelector('form[action="/signout"]') !== null;
  const lives = () => document.querySelector("[sse-connect], [hx-trigger^='every']") !== null;

  const pad = (n) => String(n).padStart(2, "0");
  const seconds = () => Date.now() / 1000 - ahead;

  // Same format as web/views/state_wording.py on the server: two figures at most.
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

  // Times in the browser's time zone: [data-clock] with the date if it is not today, [data-day] always with the date.
  let today = "";
  function clocks(root) {
    const now = new Date(seconds() * 1000).toDateString();
    if (now !== today) { today = now; root = document; } // after midnight all times are written again with their date
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
    if (signedIn && !lives() && Date.now() - opened > SESSION_IDLE_S * 1000) leave();
    for (const element of document.querySelectorAll("[data-since]")) {
      write(element, duration(seconds() - Number(element.dataset.since)));
    }
    const banner = document.getElementById("server-down");
    if (!banner || document.hidden) return;
    const now = performance.now();
    const silent = lives() && (broken || now - Math.max(heard, held) > QUIET_S * 1000);
    if (banner.hidden === silent) banner.hidden = !silent;
    document.documentElement.classList.toggle("is-silent", silent);
    if (silent) write(document.getElementById("server-down-since"), duration((now - heard) / 1000));
  }

  // What a page shows ends with its session. Live pages hear of that from the server. Others would keep their content: they leave
  // when another tab of this browser was signed out, and when the session has ended because it was not used.
  function leave() {
    document.body.replaceChildren(); // at once, also if the server does not answer
    location.reload();
  }
  const tabs = new BroadcastChannel("headway");
  if (!signedIn) tabs.postMessage("the sign-in page is open"); // it is the page after each sign-out
  else tabs.onmessage = async () => {
    const answer = await fetch("/api/v1/me").catch(() => null);
    if (answer?.status === 401) leave();
  };

  // A hidden page closes its stream: over HTTP/1.1 a browser has six connections to a server for all tabs. A stream sends the
  // whole state when it starts, so no update is lost. For htmx's extension this object is one EventSource.
  const streams = new Set();
  htmx.createEventSource = (url) => {
    let source = null, told = []; // [kind of event, listener]
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
          if (source.readyState === EventSource.CLOSED) streams.delete(stream); // htmx's extension then creates a new one
          stream.onerror?.(event);
        };
        for (const [kind, whom] of told) source.addEventListener(kind, whom);
      },
    };
    streams.add(stream);
    stream.show();
    return stream;
  };
  document.addEventListener("click", (event) => { if (event.target.closest("[data-print]")) print(); });
  document.addEventListener("visibilitychange", () => {
    for (const stream of streams) { if (document.hidden) stream.hide(); else stream.show(); }
    held = performance.now();
    tick();
  });

  // When the session ends, the page reloads and shows the sign-in page, unless the user has typed text that would be lost.
  let typed = false;
  document.addEventListener("input", (event) => { if (event.target.form?.getAttribute("method")?.toLowerCase() === "post") typed = true; });

  document.addEventListener("htmx:sseOpen", () => { broken = false; heard = performance.now(); tick(); });
  document.addEventListener("htmx:sseError", () => { broken = true; tick(); });
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    heard = performance.now();
    broken = false;
    if (event.target.id === "leave") { // the session ended or the cluster no longer exists: the reloaded page shows which
      event.preventDefault();
      if (!typed) location.reload();
    }
  });
  document.addEventListener("htmx:sseMessage", (event) => {
    if (event.target.id === "pulse") setOffset();
    clocks(event.target);
    tick();
  });
  // Pages without a stream poll every few seconds.
  const polls = (config) => config.verb === "get" && config.elt.matches("[hx-trigger^='every']");
  const refused = (xhr) => xhr.status >= 400 && xhr.getResponseHeader("HX-Reswap") !== null; // an error of the server itself, not of a proxy
  document.addEventListener("htmx:sendError", () => { broken = true; tick(); });
  document.addEventListener("htmx:responseError", (event) => {
    const { xhr, requestConfig } = event.detail;
    const over = xhr.status === 401 || [403, 404].includes(xhr.status) && refused(xhr) && polls(requestConfig);
    if (!over) { broken = true; tick(); }
    else if (!typed) location.reload(); // the reloaded page shows the reason
  });
  // Shows an error of the server in the place that its headers name; ignores the error page of a proxy. If an answer lacks the
  // requested part, the present part stays, because an empty part would stop polling.
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

  // Drops updates while a menu or question is open, or while the user edits a field of that part. This includes answers to
  // requests that were sent before.
  function waits({ requestConfig, target }) {
    if (!polls(requestConfig)) return false;
    const fills = document.activeElement?.matches("input, select, textarea") && target.contains(document.activeElement);
    if (!fills && !document.querySelector(":popover-open")) return false;
    held = performance.now();
    return true;
  }
  document.addEventListener("htmx:beforeRequest", (event) => { if (waits(event.detail)) event.preventDefault(); });
  document.addEventListener("htmx:beforeSwap", (event) => { if (waits(event.detail)) event.detail.shouldSwap = false; });

  // An update replaces elements. Restores the focus to the same link or button where htmx does not, which only compares ids.
  let focused = null; // {element, its identifying attributes, its index among elements with the same attributes}
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

  // A part with an open question is updated when the question is closed.
  const kept = new Map();
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const part = event.target, open = part.querySelector(":popover-open");
    if (!open) return;
    event.preventDefault();
    kept.set(part, event.detail.data);
    // The event of its opening may still arrive; only the event of its closing counts.
    open.addEventListener("toggle", (toggled) => {
      if (toggled.newState !== "closed" || !kept.has(part)) return;
      const text = kept.get(part);
      kept.delete(part);
      htmx.swap(part, text, { swapStyle: "innerHTML" });
    });
  });

  // The menu of a row opens at its button. It closes when the page scrolls, unless a question was opened from it: that would close too.
  document.addEventListener("beforetoggle", (event) => {
    const menu = event.target;
    if (event.newState !== "open" || !menu.matches?.(".pop--row")) return;
    const at = document.querySelector(`[popovertarget="${menu.id}"]`).getBoundingClientRect(), below = at.bottom < innerHeight - 160;
    menu.style.right = `${document.documentElement.clientWidth - at.right}px`;
    menu.style.top = below ? `${at.bottom + 4}px` : "auto";
    menu.style.bottom = below ? "auto" : `${innerHeight - at.top + 4}px`;
    const ended = new AbortController();
    addEventListener("scroll", () => { if (!document.querySelector(".pop--ask:popover-open")) menu.hidePopover(); }, ended);
    menu.addEventListener("toggle", (toggled) => { if (toggled.newState === "closed") ended.abort(); }, ended);
  }, true);

  // Messages in the corner disappear after GONE_S seconds; errors stay until they are closed.
  const GONE_S = 8;
  function toasts() {
    for (const toast of document.querySelectorAll(".toast:not([data-seen])")) {
      toast.dataset.seen = "";
      if (!toast.classList.contains("is-bad")) setTimeout(() => toast.remove(), GONE_S * 1000);
    }
  }
  document.addEventListener("click", (event) => event.target.closest("[data-close]")?.closest(".toast")?.remove());
  document.addEventListener("htmx:afterSwap", toasts);

  // Scrolls the current tab into view on phones, where the tabs are one scrolling row. Not by scrollIntoView: in some browsers it
  // also moves the position from which the Tab key continues.
  for (const here of document.querySelectorAll(".tabs [aria-current]")) {
    const row = here.closest(".tabs");
    const past = here.getBoundingClientRect().right - row.getBoundingClientRect().right;
    if (past > 0) row.scrollLeft += past;
  }

  // A second click does not send a form again until the page or a field changes. Browsers fire no "submit" for invalid forms;
  // for forms that htmx sends, the event is already prevented here.
  const sent = new Map(); // form -> function that restores its button
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
    // The browser restored the page from its cache: a form that is sent now is a new request and needs a new key.
    for (const one of document.querySelectorAll("input[name=form_key]")) one.value = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  });

  setOffset();
  toasts();
  clocks(document);
  tick();
  setInterval(tick, 1000);
})();
