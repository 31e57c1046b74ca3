// Copies a chosen or dropped file into the text field. htmx sends the form to the check.
"use strict";
(() => {
  const form = document.getElementById("submit"), file = document.getElementById("f-file"), text = document.getElementById("f-script");
  const MOST = 4 * 1024 * 1024; // bytes: Slurm's limit

  // The losses of a conversion do not hold for another script.
  function forget() { const part = document.getElementById("conversion"); if (part) { part.textContent = ""; part.classList.remove("is-done"); } }

  async function take(one) {
    const name = document.getElementById("file-name");
    if (one.size > MOST) { name.textContent = `${one.name} is larger than 4 MiB`; return; }
    text.value = await one.text();
    document.getElementById("f-script_name").value = one.name;
    name.textContent = one.name;
    forget();
    text.dispatchEvent(new Event("change", { bubbles: true }));
  }

  file?.addEventListener("change", (event) => { event.stopPropagation(); if (file.files[0]) take(file.files[0]); });
  text?.addEventListener("drop", (event) => { if (event.dataTransfer.files[0]) { event.preventDefault(); take(event.dataTransfer.files[0]); } });
  text?.addEventListener("dragover", (event) => { if ([...event.dataTransfer.types].includes("Files")) event.preventDefault(); });

  text?.addEventListener("beforeinput", () => { if (text.selectionStart === 0 && text.selectionEnd === text.value.length) forget(); });
  // A correction belongs to the script that was checked: after a change it waits for the next check.
  text?.addEventListener("input", () => form.querySelectorAll("[data-edits]").forEach((button) => { button.disabled = true; }));
  // Applies a correction of lint: from the end to the beginning, so that line numbers stay valid.
  form?.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-edits]");
    if (!button || !text) return;
    const edits = JSON.parse(button.dataset.edits).edits, lines = text.value.split("\n");
    edits.map((edit, at) => ({ ...edit, at })).sort((a, b) => b.first - a.first || b.last - a.last || b.at - a.at)
      .forEach((edit) => lines.splice(edit.first - 1, edit.last - edit.first + 1, ...edit.lines));
    text.value = lines.join("\n");
    if ("converts" in button.dataset) document.getElementById("conversion").classList.add("is-done");
    text.dispatchEvent(new Event("input"));
    text.dispatchEvent(new Event("change", { bubbles: true }));
  });

  // Line numbers grow with the script; marks of changed lines wait for the next check.
  function number() {
    const lines = document.getElementById("script-lines"), count = text.value.split("\n").length;
    while (lines.childElementCount > count) lines.lastElementChild.remove();
    while (lines.childElementCount < count) lines.append(Object.assign(document.createElement("span"), { textContent: lines.childElementCount + 1 }));
    text.rows = Math.max(12, count); // for browsers without field-sizing
  }
  for (const kind of ["input", "change"]) text?.addEventListener(kind, number);
  form?.addEventListener("click", (event) => {
    const line = Number(event.target.closest?.("[data-line]")?.dataset.line);
    if (!line || !text) return;
    const before = text.value.split("\n").slice(0, line), end = before.join("\n").length;
    text.focus();
    text.setSelectionRange(end - before.at(-1).length, end);
    document.querySelector(`#script-lines span:nth-child(${line})`)?.scrollIntoView({ block: "nearest" });
  });

  form?.addEventListener("htmx:oobAfterSwap", (event) => {
    if (text) number(); // lines may have been added since the check was sent
    const at = event.target.closest?.(".field");
    if (!at || event.target.id === "script-lines") return;
    const bad = event.target.textContent.trim() !== "";
    at.classList.toggle("is-bad", bad);
    const input = at.querySelector(".input");
    if (bad) input?.setAttribute("aria-invalid", "true");
    else input?.removeAttribute("aria-invalid");
  });
  // Checks a form that was filled in by the server, after htmx has started, unless the page already shows faults.
  addEventListener("DOMContentLoaded", () => {
    if (text?.value && !form.querySelector("#verdict .is-bad")) text.dispatchEvent(new Event("change", { bubbles: true }));
  });
})();
