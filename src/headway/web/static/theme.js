// Runs before the first paint, so that the page does not flash in the wrong theme.
"use strict";
(() => {
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("headway-theme"); } catch { return null; } };
  const theme = remembered();
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  document.addEventListener("click", (event) => {
    if (!event.target.closest("#theme")) return;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("headway-theme", root.dataset.theme); } catch { /* not remembered, still changed */ }
    document.dispatchEvent(new Event("headway:theme"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("headway:theme")));
})();
