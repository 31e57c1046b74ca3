// Countdowns ("in 14 min", time left until a limit), and filters that apply at once.
"use strict";
(() => {
  const pad = (n) => String(n).padStart(2, "0");

  // Same format as jobs/explain/phrases.py on the server.
  function span(seconds) {
    if (seconds < 1) return "any moment";
    const s = Math.round(seconds);
    if (s < 90) return `in ${s} s`;
    const minutes = Math.round(s / 60);
    if (minutes < 90) return `in ${minutes} min`;
    const hours = Math.floor(minutes / 60), rest = minutes % 60;
    if (hours < 48) return rest ? `in ${hours} h ${rest} min` : `in ${hours} h`;
    return `in ${Math.round(hours / 24)} days`;
  }

  function left(seconds) {
    const s = Math.max(0, Math.floor(seconds)), d = Math.floor(s / 86400);
    const clock = `${pad(Math.floor(s / 3600) % 24)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}`;
    return d ? `${d}-${clock}` : clock;
  }

  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  let ahead = 0; // this clock minus the server's, in seconds
  function tick() {
    const pulse = document.querySelector("[data-now]");
    if (pulse && pulse.dataset.now !== tick.seen) {
      tick.seen = pulse.dataset.now;
      ahead = Date.now() / 1000 - Number(pulse.dataset.now);
    }
    const now = Date.now() / 1000 - ahead;
    for (const one of document.querySelectorAll("[data-until]")) write(one, span(Number(one.dataset.until) - now));
    for (const one of document.querySelectorAll("[data-left]")) write(one, left(Number(one.dataset.left) - now));
  }
  setInterval(tick, 1000);
  tick();

  // A choice with the pointer applies at once. With the keyboard each arrow key changes the choice, so Search applies it.
  const filters = document.getElementById("filters");
  let keys = false;
  filters?.addEventListener("keydown", () => { keys = true; });
  filters?.addEventListener("pointerdown", () => { keys = false; });
  filters?.addEventListener("change", (event) => {
    if (!keys && event.target.matches("select:not([name=size])")) filters.requestSubmit();
  });
})();
