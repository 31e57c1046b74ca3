// Selected jobs of the queue: one question names them, the API acts on them, and the result is shown job by job.
"use strict";
(() => {
  const box = document.querySelector("[data-picks]"), bar = box.querySelector(".q-bulk"), ask = box.querySelector("dialog");
  const title = ask.querySelector("h2"), effect = ask.querySelector("[data-effect]"), list = ask.querySelector("ul"), yes = ask.querySelector("[data-yes]"), no = ask.querySelector("[value='']");
  const MOST = 200; // jobs of one request
  const picked = new Map(); // job -> its words
  const WORDS = {
    cancel: ["Cancel", "cancelled", "They end and do not start again."],
    hold: ["Hold", "held", "Slurm does not start them until they are released."],
    release: ["Release", "released", "Slurm may start them again."],
    requeue: ["Requeue", "requeued", "They stop now and start again from their last checkpoints when nodes are free."],
  };
  const jobs = (n) => `${n} ${n === 1 ? "job" : "jobs"}`;
  let action = "";

  // Rows are replaced when the queue changes: the selection is drawn into them again. A job that has ended is no longer selected.
  function draw() {
    const there = new Set();
    for (const one of box.querySelectorAll(".q-pick")) {
      one.disabled = Boolean(box.dataset.own) && one.dataset.user !== box.dataset.own;
      one.checked = picked.has(one.value);
      there.add(one.value);
    }
    for (const job of picked.keys()) if (!there.has(job)) picked.delete(job);
    bar.hidden = picked.size === 0;
    bar.querySelector("[data-count]").textContent = `${jobs(picked.size)} selected`;
  }

  function item(text, job) {
    const line = document.createElement("li");
    if (job) {
      const link = document.createElement("a");
      link.className = "link";
      link.href = box.dataset.page + job;
      link.textContent = job;
      line.append(link, ": ");
    }
    line.append(text);
    return line;
  }

  function show(heading, words, lines, { button = "", bad = false, keep = "Keep them" } = {}) {
    title.textContent = heading;
    effect.textContent = words;
    list.replaceChildren(...lines);
    yes.hidden = !button;
    yes.textContent = button;
    yes.className = `btn ${bad ? "btn--bad" : "btn--main"}`;
    no.textContent = keep;
    if (!ask.open) ask.showModal();
  }

  async function send() {
    const [, done] = WORDS[action], ids = [...picked.keys()];
    try {
      const answer = await fetch(box.dataset.picks, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ action, jobs: ids }) });
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.detail || told.message || "The server refused it");
      const failed = told.results.filter((one) => one.error);
      for (const one of told.results) if (!one.error) picked.delete(one.job);
      draw();
      const words = failed.length ? `${failed.length} could not be ${done}; ${failed.length === 1 ? "it stays" : "they stay"} selected:` : "";
      show(`${jobs(told.done)} ${done}`, words, failed.map((one) => item(one.hint ? `${one.error} (${one.hint})` : one.error, one.job)), { keep: "Close" });
    } catch (error) {
      show("No answer", `${error.message || "The server does not answer"}. Look in the queue before you try again.`, [], { keep: "Close" });
    }
  }

  box.addEventListener("change", (event) => {
    if (!event.target.matches(".q-pick")) return;
    if (event.target.checked) picked.set(event.target.value, event.target.dataset.words); else picked.delete(event.target.value);
    draw();
  });
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if ("none" in button.dataset) picked.clear();
    if ("all" in button.dataset) for (const one of box.querySelectorAll(".q-pick:not(:disabled)")) if (picked.size < MOST) picked.set(one.value, one.dataset.words);
    action = button.dataset.action || "";
    draw();
    if (!action) return;
    const [verb, , words] = WORDS[action];
    show(`${verb} ${jobs(picked.size)}?`, words, [...picked.values()].map((one) => item(one)), { button: `${verb} ${jobs(picked.size)}`, bad: action === "cancel" });
  });
  ask.addEventListener("close", () => {
    const confirmed = ask.returnValue === "yes";
    ask.returnValue = "";
    if (confirmed) send();
  });
  document.addEventListener("htmx:sseMessage", (event) => { if (event.target.id === "rows") draw(); });
  draw();
})();
