// A script from a file goes into the text field; everything else is the form's own, and htmx asks whether it fits.
"use strict";
(() => {
  const form = document.getElementById("submit"), file = document.getElementById("f-file"), text = document.getElementById("f-script");
  const MOST = 4 * 1024 * 1024; // bytes, as Slurm takes

  async function take(one) {
    const name = document.getElementById("file-name");
    if (one.size > MOST) { name.textContent = `${one.name} is larger than 4 MiB`; return; }
    text.value = await one.text();
    document.getElementById("f-script_name").value = one.name;
    name.textContent = one.name;
    text.dispatchEvent(new Event("change", { bubbles: true }));
  }

  file?.addEventListener("change", (event) => { event.stopPropagation(); if (file.files[0]) take(file.files[0]); });
  text?.addEventListener("drop", (event) => { if (event.dataTransfer.files[0]) { event.preventDefault(); take(event.dataTransfer.files[0]); } });
  text?.addEventListener("dragover", (event) => { if ([...event.dataTransfer.types].includes("Files")) event.preventDefault(); });

  form?.addEventListener("htmx:oobAfterSwap", (event) => {
    const at = event.target.closest?.(".field");
    if (!at) return;
    const bad = event.target.textContent.trim() !== "";
    at.classList.toggle("is-bad", bad);
    const input = at.querySelector(".input");
    if (bad) input?.setAttribute("aria-invalid", "true");
    else input?.removeAttribute("aria-invalid");
  });
  // What the form came filled with is looked at too, once htmx listens; what was said of it already stays.
  addEventListener("DOMContentLoaded", () => {
    if (text?.value && !form.querySelector("#verdict .is-bad")) text.dispatchEvent(new Event("change", { bubbles: true }));
  });
})();
