// The button that copies the batch script.
"use strict";
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const said = button.nextElementSibling, box = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(box.textContent);
      said.textContent = "copied";
    } catch { // over plain HTTP there is no clipboard: the text is selected instead
      getSelection().selectAllChildren(box);
      said.textContent = document.execCommand("copy") ? "copied" : "selected: press Ctrl C";
    }
  });
}
