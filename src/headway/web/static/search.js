// The search (Ctrl K, /), the list of keys (?), and keys that open pages (g, then a letter). Results are HTML from the server.
"use strict";
(() => {
  const search = document.getElementById("search"), keys = document.getElementById("keys");
  if (!search) return;
  const input = document.getElementById("search-text"), found = document.getElementById("found");
  const toggle = document.getElementById("single-keys"), STORED = "headway-single-keys";
  const SECOND_MS = 1500; // the time for the letter after g
  let went = 0; // when g was pressed; 0 = not

  const links = () => [...found.querySelectorAll("a")];
  function open(dialog) {
    for (const one of [search, keys]) if (one !== dialog) one.close();
    if (!dialog.open) dialog.showModal();
    if (dialog !== search) return;
    input.select();
    htmx.trigger(input, "search-opened");
  }

  for (const link of document.querySelectorAll("[data-search]")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in a new tab
      event.preventDefault();
      open(search);
    });
  }
  for (const button of document.querySelectorAll("[data-keys]")) button.addEventListener("click", () => open(keys));
  for (const dialog of [search, keys]) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-close-dialog]")) dialog.close();
    });
  }

  // Up and down move through the field and the results; Enter in the field opens the first result.
  search.addEventListener("keydown", (event) => {
    const stops = [input, ...links()], at = stops.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && at >= 0) {
      event.preventDefault();
      stops[(at + step + stops.length) % stops.length].focus();
    } else if (event.key === "Enter" && document.activeElement === input && found.dataset.text === input.value && stops[1]) {
      event.preventDefault();
      stops[1].click();
    }
  });
  // Results of an earlier text are not opened: without results of the present text, Enter sends the form.
  found.addEventListener("htmx:beforeSwap", (event) => { found.dataset.text = new URL(event.detail.xhr.responseURL).searchParams.get("q") ?? ""; });

  try { toggle.checked = localStorage.getItem(STORED) !== "off"; } catch { /* all keys work */ }
  toggle.addEventListener("change", () => {
    try { localStorage.setItem(STORED, toggle.checked ? "on" : "off"); } catch { /* not remembered */ }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      open(search);
      return;
    }
    const types = event.target.closest?.("input, select, textarea, [contenteditable], [role=application], dialog");
    if (types || !toggle.checked || event.ctrlKey || event.metaKey || event.altKey || document.querySelector(":popover-open")) return;
    const second = went && event.timeStamp - went < SECOND_MS;
    went = 0;
    if (second) {
      const link = keys.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
    } else if (event.key === "g") went = event.timeStamp;
    else if (event.key === "/") { event.preventDefault(); open(search); }
    else if (event.key === "?") { event.preventDefault(); open(keys); }
  });
})();
