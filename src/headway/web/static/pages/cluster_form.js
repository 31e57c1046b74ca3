// The form of a cluster file: adds empty rows to lists, and links each fault to its line.
"use strict";
(() => {
  const text = () => document.getElementById("text");

  function grow() {
    const area = text();
    if (area) area.rows = Math.max(12, area.value.split("\n").length);
  }

  // Adds an empty row below the last row of a list when that is filled in.
  function more(input) {
    const row = input.closest("[data-row]");
    if (!row || row.nextElementSibling || !input.value) return;
    const kind = row.parentElement.dataset.rows;
    const next = row.cloneNode(true);
    for (const field of next.querySelectorAll("input")) {
      field.name = field.name.replace(/-(\d+)-/, (_, n) => `-${Number(n) + 1}-`);
      if (field.type === "checkbox") field.checked = false;
      else field.value = "";
    }
    if (next.querySelector(`[name^="${kind}-60-"]`)) return;
    row.after(next);
  }

  function go(line) {
    const area = text();
    const lines = area.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    area.focus();
    area.setSelectionRange(start, start + (lines[line - 1] || "").length);
    area.parentElement.scrollTop = Math.max(0, (line - 4) * 20);
  }

  document.addEventListener("input", (event) => {
    if (event.target === text()) grow();
    else more(event.target);
  });
  document.addEventListener("click", (event) => {
    const line = event.target.closest("[data-line]");
    if (line) go(Number(line.dataset.line));
  });
  document.addEventListener("htmx:oobAfterSwap", grow);
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  document.getElementById("check").hidden = true; // with scripts, input is checked while typing
  const changes = document.getElementById("changes") || document.getElementById("refused");
  if (changes) changes.scrollIntoView({ block: "start" });
})();
