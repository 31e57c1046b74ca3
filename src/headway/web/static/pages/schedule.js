// The schedule: a chart of nodes by time on one canvas, which draws only the rows in view. Data: GET /api/v1/clusters/NAME/schedule,
// loaded again when the table below it has changed. Dragging over rows and hours fills the form of a reservation.
"use strict";
(() => {
  const box = document.querySelector("[data-schedule]");
  if (!box) return;
  const scroll = box.querySelector(".sch__scroll"), rail = box.querySelector(".sch__rail"), canvas = box.querySelector("canvas");
  const said = box.querySelector(".sch__said"), tip = box.querySelector(".sch__tip"), trouble = box.querySelector(".sch__trouble");
  const form = document.getElementById("window-form");
  const ctx = canvas.getContext("2d");
  const AXIS = 26, ROW = 22, LANE = 9, HUES = 8, OPEN_UP_TO = 128, MINUTE = 60, HOUR = 3600, DAY = 86400, DRAG_PX = 5;
  let data = null, rows = [], shut = null, hours = 24, back = 0, at = null, drag = null, chosen = null, colour = {}, font = "sans-serif";
  const now = () => Date.now() / 1000;

  function colours() {
    const probe = box.querySelector(".sch__probe");
    colour = { hues: [] };
    for (const kind of ["text", "soft", "line", "strong", "surface", "sunken", "accent", "warn", "bad", "on"]) { probe.className = `sch__probe is-${kind}`; colour[kind] = getComputedStyle(probe).color; }
    for (let i = 0; i < HUES; i += 1) { probe.className = `sch__probe hue-${i}`; colour.hues.push(getComputedStyle(probe).color); }
    font = getComputedStyle(document.body).fontFamily;
  }

  // --- rows: a head for each leaf switch, and its nodes. Bars that overlap on a node lie in lanes.

  function bars() {
    const found = new Map(data.nodes.map((node) => [node.name, { jobs: [], kept: [] }]));
    for (const job of data.jobs) for (const name of job.nodes) found.get(name)?.jobs.push(job);
    for (const one of data.reservations) for (const name of one.nodes) found.get(name)?.kept.push(one);
    return found;
  }

  const end = (one) => one.end || Infinity;

  function lanes(jobs) {
    const ends = [];
    return jobs.toSorted((a, b) => a.start - b.start || a.id - b.id).map((job) => {
      let lane = ends.findIndex((free) => free <= job.start);
      if (lane < 0) lane = ends.length;
      ends[lane] = end(job);
      return { job, lane };
    });
  }

  function layout() {
    const on = bars(), leaves = new Map();
    for (const node of data.nodes) leaves.set(node.leaf, [...(leaves.get(node.leaf) || []), node]);
    if (shut === null) shut = new Set(data.nodes.length > OPEN_UP_TO ? leaves.keys() : []);
    rows = [];
    let y = 0;
    const add = (row) => { rows.push({ ...row, y }); y += row.h; };
    for (const [leaf, nodes] of leaves) {
      const all = nodes.map((node) => ({ node, ...on.get(node.name) }));
      if (leaf) add({ leaf, all, h: ROW + 2 });
      if (leaf && shut.has(leaf)) continue;
      for (const one of all) {
        const laid = lanes(one.jobs), most = Math.max(1, ...laid.map((bar) => bar.lane + 1));
        add({ ...one, laid, most, h: Math.max(ROW, most * LANE + 6) });
      }
    }
    rail.style.height = `${AXIS + y + 2}px`;
    resize();
  }

  function resize() {
    const ratio = devicePixelRatio || 1, width = scroll.clientWidth, height = Math.min(scroll.clientHeight, rail.offsetHeight);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }

  // --- places

  const width = () => scroll.clientWidth;
  const left = () => Math.min(150, Math.round(width() * .3));
  const from = () => now() - hours * HOUR / 10 + back;
  const x = (time) => left() + (time - from()) / (hours * HOUR) * (width() - left());
  const time = (px) => from() + (px - left()) / (width() - left()) * hours * HOUR;
  const clampX = (px) => Math.max(left(), Math.min(width(), px));
  const snap = () => (hours <= 6 ? 5 : hours <= 24 ? 15 : hours <= 72 ? 30 : 60) * MINUTE;

  function firstRow(y) {
    let low = 0, high = rows.length;
    while (low < high) { const middle = (low + high) >> 1; if (rows[middle].y + rows[middle].h <= y) low = middle + 1; else high = middle; }
    return low;
  }

  // --- drawing

  function ticks() {
    const step = [HOUR / 2, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY].find((one) => one / (hours * HOUR) * (width() - left()) >= 52) || 4 * DAY;
    const shift = new Date().getTimezoneOffset() * MINUTE, found = [];
    for (let tick = Math.ceil((from() - shift) / step) * step + shift; tick < from() + hours * HOUR; tick += step) found.push([tick, step]);
    return found;
  }

  const pad = (n) => String(n).padStart(2, "0");
  const clock = (unix) => { const when = new Date(unix * 1000); return `${pad(when.getHours())}:${pad(when.getMinutes())}`; };
  const date = (unix) => new Date(unix * 1000).toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" });

  function hatch(x0, y0, w, h, paint, gap = 5) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(x0, y0, w, h);
    ctx.clip();
    ctx.strokeStyle = paint;
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (let i = x0 - h - ((x0 - h) % gap); i < x0 + w; i += gap) { ctx.moveTo(i, y0 + h); ctx.lineTo(i + h, y0); }
    ctx.stroke();
    ctx.restore();
  }

  function band(one, y0, h) {
    const x0 = clampX(x(one.start)), x1 = clampX(x(end(one)));
    if (x1 <= x0) return;
    const paint = one.kind === "maintenance" ? colour.warn : one.kind === "reservation" ? colour.accent : colour.soft;
    ctx.globalAlpha = one.kind === "maintenance" ? .22 : .1;
    ctx.fillStyle = paint;
    ctx.fillRect(x0, y0, x1 - x0, h);
    ctx.globalAlpha = one.kind === "maintenance" ? .8 : .35;
    hatch(x0, y0, x1 - x0, h, paint, one.kind === "maintenance" ? 6 : 9);
    ctx.globalAlpha = 1;
  }

  function label(text, x0, x1, y0, h, paint) {
    const size = Math.min(11, h - 1);
    if (size < 8 || x1 - x0 < 30) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x0, y0, x1 - x0 - 3, h);
    ctx.clip();
    ctx.font = `520 ${size}px ${font}`;
    ctx.fillStyle = paint;
    ctx.textBaseline = "middle";
    ctx.fillText(text, x0 + 5, y0 + h / 2 + .5);
    ctx.restore();
  }

  function bar(job, x0, x1, y0, h) {
    const paint = colour.hues[job.id % HUES], plan = job.state === "planned";
    ctx.beginPath();
    ctx.roundRect(x0 + .5, y0 + .5, Math.max(2, x1 - x0 - 1), h - 1, Math.min(4, h / 3));
    ctx.fillStyle = plan ? colour.surface : paint;
    ctx.fill();
    if (plan) { ctx.globalAlpha = .16; ctx.fillStyle = paint; ctx.fill(); ctx.globalAlpha = 1; }
    ctx.strokeStyle = at && at.job === job ? colour.text : plan ? paint : colour.surface;
    ctx.lineWidth = at && at.job === job ? 2 : 1;
    ctx.setLineDash(plan && !(at && at.job === job) ? [4, 3] : []);
    ctx.stroke();
    ctx.setLineDash([]);
    label(`${job.label} ${job.name}`, x0, x1, y0, h, plan ? colour.text : colour.on);
  }

  function drawNode(row, y0) {
    for (const one of row.kept) band(one, y0 + 1, row.h - 2);
    if (row.node.out) {
      const x0 = clampX(x(now()));
      ctx.globalAlpha = .3;
      hatch(x0, y0 + 1, width() - x0, row.h - 2, row.node.out === "down" ? colour.bad : colour.soft, 7);
      ctx.globalAlpha = 1;
    }
    const h = (row.h - 6) / row.most;
    for (const { job, lane } of row.laid) {
      const x0 = clampX(x(job.start)), x1 = clampX(x(end(job)));
      if (x1 - x0 > .5) bar(job, x0, x1, y0 + 3 + lane * h, row.most > 1 ? h - 1 : h);
    }
    for (const one of row.kept) if (one.kind !== "spares" && !row.laid.length) label(one.name, clampX(x(one.start)), clampX(x(end(one))), y0 + 1, row.h - 2, colour.text);
  }

  // The share of a leaf's nodes that have a job, by time.
  function drawShare(row, y0) {
    const edges = new Map(), add = (when, n) => edges.set(when, (edges.get(when) || 0) + n);
    for (const one of row.all) {
      let until = -Infinity; // overlapping jobs of a node count once
      for (const job of one.jobs.toSorted((a, b) => a.start - b.start)) {
        const begin = Math.max(job.start, until);
        if (end(job) <= begin) continue;
        add(begin, 1);
        add(end(job), -1);
        until = end(job);
      }
    }
    let held = 0, last = -Infinity;
    const h = row.h - 6;
    ctx.fillStyle = colour.accent;
    for (const [when, n] of [...edges].sort((a, b) => a[0] - b[0])) {
      share(last, when, held);
      held += n;
      last = when;
    }
    share(last, Infinity, held);
    function share(begin, stop, count) {
      const x0 = clampX(x(begin)), x1 = clampX(x(stop)), tall = Math.round(h * count / row.all.length);
      if (count && x1 > x0) { ctx.globalAlpha = .55; ctx.fillRect(x0, y0 + 3 + h - tall, x1 - x0, tall); ctx.globalAlpha = 1; }
    }
    for (const one of new Set(row.all.flatMap((node) => node.kept))) if (one.kind !== "spares" && one.kind !== "test") band(one, y0 + 3, h);
  }

  function draw() {
    if (!data) return;
    const began = performance.now(), w = width(), tall = canvas.clientHeight, top = scroll.scrollTop;
    ctx.clearRect(0, 0, w, tall);
    for (const [tick] of ticks()) { ctx.fillStyle = colour.line; ctx.fillRect(Math.round(x(tick)), AXIS, 1, tall); }
    let drawn = 0;
    for (let i = firstRow(top); i < rows.length && rows[i].y < top + tall; i += 1) {
      const row = rows[i], y0 = AXIS + row.y - top;
      drawn += 1;
      if (row.all) { ctx.fillStyle = colour.sunken; ctx.fillRect(0, y0, w, row.h); }
      ctx.fillStyle = colour.line;
      ctx.fillRect(0, y0 + row.h - 1, w, 1);
      ctx.textBaseline = "middle";
      if (row.all) {
        if (shut.has(row.leaf)) drawShare(row, y0);
        ctx.fillStyle = colour.text;
        ctx.font = `560 12px ${font}`;
        ctx.fillText(`${shut.has(row.leaf) ? "▸" : "▾"} ${row.leaf}`, 8, y0 + row.h / 2, left() - 40);
        ctx.fillStyle = colour.soft;
        ctx.font = `400 11px ${font}`;
        ctx.textAlign = "right";
        ctx.fillText(`${row.all.length}`, left() - 8, y0 + row.h / 2);
        ctx.textAlign = "left";
      } else {
        drawNode(row, y0);
        ctx.fillStyle = row.node.out === "down" ? colour.bad : row.node.out ? colour.soft : colour.text;
        ctx.font = `400 11.5px ${font}`;
        ctx.save();
        ctx.beginPath();
        ctx.rect(0, y0, left() - 4, row.h);
        ctx.clip();
        ctx.fillText(row.node.name, row.node.leaf ? 20 : 8, y0 + row.h / 2);
        ctx.restore();
      }
      const inside = chosen && chosen.rows.includes(i);
      if (inside) {
        const x0 = clampX(x(chosen.start)), x1 = clampX(x(chosen.end));
        ctx.globalAlpha = .25;
        ctx.fillStyle = colour.accent;
        ctx.fillRect(x0, y0, x1 - x0, row.h);
        ctx.globalAlpha = 1;
      }
      if (at && at.row === i && !at.job) { ctx.strokeStyle = colour.accent; ctx.lineWidth = 2; ctx.strokeRect(1, y0 + 1, w - 2, row.h - 3); }
    }
    ctx.fillStyle = colour.surface;
    ctx.fillRect(0, 0, w, AXIS);
    ctx.fillStyle = colour.strong;
    ctx.fillRect(0, AXIS - 1, w, 1);
    ctx.fillRect(left() - 1, 0, 1, tall);
    ctx.textBaseline = "middle";
    ctx.font = `400 11px ${font}`;
    let free = left(); // where no label is yet
    for (const [tick, step] of ticks()) {
      const midnight = clock(tick) === "00:00", text = step >= DAY || midnight ? date(tick) : clock(tick), px = x(tick);
      ctx.fillStyle = midnight ? colour.text : colour.soft;
      const stop = px + 4 + ctx.measureText(text).width;
      if (px < free || stop > w) continue;
      ctx.fillText(text, px + 4, AXIS / 2);
      free = stop + 4;
    }
    if (now() >= from() && now() <= from() + hours * HOUR) {
      ctx.fillStyle = colour.bad;
      ctx.fillRect(Math.round(x(now())), AXIS - 6, 1.5, tall);
    }
    box.dataset.rows = String(rows.length);
    box.dataset.drawn = String(drawn);
    box.dataset.drawMs = (performance.now() - began).toFixed(1);
  }

  // --- what lies under the pointer, and words for it

  function spot(event) {
    const edge = canvas.getBoundingClientRect(), px = event.clientX - edge.left, py = event.clientY - edge.top + scroll.scrollTop - AXIS;
    const inAxis = event.clientY - edge.top < AXIS, row = inAxis ? rows.length : firstRow(py), one = rows[row];
    if (!one) return { px, row: -1 };
    const moment = time(px);
    let job = null, kept = null;
    if (px >= left() && one.laid) {
      const lane = Math.floor((py - one.y - 3) / ((one.h - 6) / one.most));
      job = one.laid.find((laid) => (laid.lane === lane || one.most === 1) && laid.job.start <= moment && end(laid.job) > moment)?.job || null;
      kept = one.kept.find((reserved) => reserved.start <= moment && end(reserved) > moment) || null;
    }
    return { px, row, job, kept };
  }

  const day = (unix) => `${date(unix)} ${clock(unix)}`;
  const until = (one) => (one.end ? `until ${day(one.end)}` : "without end");
  const counted = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

  function words(found) {
    const row = rows[found.row];
    if (!row) return "";
    if (found.job) {
      const job = found.job, size = job.gpus ? counted(job.gpus, "GPU") : counted(job.node_count, "node");
      return job.state === "running"
        ? `Job ${job.label} ${job.name} of ${job.user}, ${size}, since ${day(job.start)}, ${job.end ? `ends ${day(job.end)} at the latest` : "without a time limit"}`
        : `Job ${job.label} ${job.name} of ${job.user}, ${size}: Slurm plans to start it ${day(job.start)}`;
    }
    if (found.kept) return `${found.kept.kind === "maintenance" ? "Maintenance" : found.kept.kind === "spares" ? "Spare: reservation" : "Reservation"} ${found.kept.name}, from ${day(found.kept.start)} ${until(found.kept)}`;
    if (row.all) return `${row.leaf}, ${counted(row.all.length, "node")}: ${shut.has(row.leaf) ? "click to show them" : "click to fold"}`;
    return `${row.node.name}${row.node.out ? `: ${row.node.out}` : ""}${row.laid.length ? `, ${counted(row.laid.length, "job")}` : ", no job"}`;
  }

  function show(found, speak) {
    at = found && found.row >= 0 ? found : null;
    draw();
    const text = at ? words(at) : "";
    tip.hidden = !text || Boolean(drag);
    tip.textContent = text;
    if (text) {
      const row = rows[at.row], y0 = AXIS + row.y + row.h - scroll.scrollTop + 4;
      tip.style.left = `${Math.max(0, Math.min((at.px ?? left()) + 8, width() - tip.offsetWidth - 4))}px`;
      tip.style.top = `${scroll.offsetTop + Math.min(y0, scroll.clientHeight - tip.offsetHeight)}px`;
    }
    if (speak) said.textContent = text;
  }

  function toggle(leaf) {
    if (shut.has(leaf)) shut.delete(leaf); else shut.add(leaf);
    layout();
  }

  function enter(found) {
    const row = rows[found.row];
    if (!row) return;
    if (found.job) location.href = `${box.dataset.jobs}${found.job.id}`;
    else if (row.all) toggle(row.leaf);
    else location.href = `${box.dataset.nodes}${encodeURIComponent(row.node.name)}`;
  }

  // --- dragging over nodes and hours

  function chosenRows(first, last) {
    const found = [];
    for (let i = Math.min(first, last); i <= Math.max(first, last); i += 1) found.push(i);
    return found;
  }

  function choose(found) {
    const step = snap(), low = Math.min(drag.px, found.px), high = Math.max(drag.px, found.px);
    const start = Math.max(Math.floor(time(Math.max(low, left())) / step) * step, Math.ceil(now() / (5 * MINUTE)) * 5 * MINUTE);
    const stop = Math.max(start + step, Math.ceil(time(high) / step) * step);
    chosen = { rows: chosenRows(drag.row, found.row < 0 ? drag.row : found.row), start, end: stop };
    draw();
    const names = namesOf(chosen);
    said.textContent = `${counted(names.length, "node")}, from ${day(start)} until ${day(stop)}`;
    tip.hidden = false;
    tip.textContent = said.textContent;
  }

  function namesOf(choice) {
    const names = new Set();
    for (const i of choice.rows) for (const one of rows[i].all ? (shut.has(rows[i].leaf) ? rows[i].all : []) : [rows[i]]) names.add(one.node.name);
    if (!names.size) for (const i of choice.rows) for (const one of rows[i].all || []) names.add(one.node.name); // a head alone: its whole leaf
    return [...names];
  }

  // "a-1,a-2,b" -> "a-[1-2],b", as Slurm writes lists of nodes.
  function hostlist(names) {
    const groups = new Map();
    for (const name of names) {
      const [, head, number] = name.match(/^(.*?)(\d+)$/) || [null, name, ""];
      groups.set(head, [...(groups.get(head) || []), number]);
    }
    return [...groups].map(([head, numbers]) => {
      if (numbers.length === 1) return head + numbers[0];
      const spans = [];
      for (const number of numbers.sort((a, b) => a - b)) {
        const last = spans.at(-1);
        if (last && Number(number) === Number(last[1]) + 1 && number.length === String(Number(number)).length) last[1] = number; else spans.push([number, number]);
      }
      return `${head}[${spans.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(",")}]`;
    }).join(",");
  }

  function localText(unix) {
    const when = new Date(unix * 1000);
    return `${when.getFullYear()}-${pad(when.getMonth() + 1)}-${pad(when.getDate())}T${clock(unix)}`;
  }

  function fill(choice) {
    const names = namesOf(choice);
    form.elements.nodes.value = names.length === data.nodes.length ? "" : hostlist(names);
    form.elements.start.value = localText(choice.start);
    form.elements.hours.value = String(Math.round((choice.end - choice.start) / 36) / 100);
    form.closest("details").open = true;
    form.scrollIntoView({ block: "center", behavior: "smooth" });
    form.elements.window.focus({ preventScroll: true });
  }

  canvas.addEventListener("pointerdown", (event) => {
    const found = spot(event);
    if (event.button !== 0 || event.pointerType === "touch" || found.row < 0 || found.px < left()) return;
    drag = { ...found, event, far: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const found = spot(event);
    if (drag && form) {
      drag.far ||= Math.hypot(event.clientX - drag.event.clientX, event.clientY - drag.event.clientY) > DRAG_PX;
      if (drag.far) { choose(found); return; }
    }
    canvas.classList.toggle("is-link", Boolean(found.job) || found.px < left());
    show(found);
  });
  canvas.addEventListener("pointerup", (event) => {
    const dragged = drag?.far;
    drag = null;
    if (dragged && chosen) fill(chosen);
    else if (event.button === 0) { const found = spot(event); if (found.job || found.px < left() || rows[found.row]?.all) enter(found); }
  });
  canvas.addEventListener("pointercancel", () => { drag = null; chosen = null; draw(); });
  canvas.addEventListener("pointerleave", () => { if (!drag) show(null); });
  canvas.addEventListener("blur", () => show(null));

  // Up and down move between rows, left and right between the jobs of a node.
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { drag = null; chosen = null; draw(); return; }
    if (!rows.length) return;
    const row = at ? at.row : -1, jobs = (rows[row]?.laid || []).map((laid) => laid.job), place = at?.job ? jobs.indexOf(at.job) : -1;
    if (event.key === "Enter" && at) { event.preventDefault(); enter(at); return; }
    let next = null;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") next = { row: Math.max(0, Math.min(rows.length - 1, row + (event.key === "ArrowDown" ? 1 : -1))) };
    if (event.key === "Home" || event.key === "End") next = { row: event.key === "Home" ? 0 : rows.length - 1 };
    if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && row >= 0) {
      const to = place + (event.key === "ArrowRight" ? 1 : -1);
      next = { row, job: jobs[Math.min(to, jobs.length - 1)] || null };
    }
    if (!next) return;
    event.preventDefault();
    const { y, h } = rows[next.row], room = scroll.clientHeight - AXIS;
    if (y < scroll.scrollTop) scroll.scrollTop = y;
    else if (y + h > scroll.scrollTop + room) scroll.scrollTop = y + h - room;
    if (next.job) next.px = clampX(x(next.job.start));
    show(next, true);
  });

  // --- controls

  box.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.hours) {
      hours = Number(button.dataset.hours);
      back = 0;
      for (const one of box.querySelectorAll("[data-hours]")) one.setAttribute("aria-pressed", String(one === button));
    }
    if (button.dataset.step) back = Number(button.dataset.step) ? back + Number(button.dataset.step) * hours * HOUR / 2 : 0;
    if (button.dataset.fold && data) {
      shut = new Set(button.dataset.fold === "shut" ? data.nodes.map((node) => node.leaf) : []);
      layout();
    }
    draw();
  });
  scroll.addEventListener("scroll", () => { tip.hidden = true; draw(); }, { passive: true });

  // The field of the start is in the browser's time zone; the server takes unix seconds.
  if (form) {
    const start = form.elements.start, zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    form.querySelector("[data-zone]").textContent = zone ? `your time zone, ${zone}` : "your time zone";
    start.value = localText(Number(form.elements.start_at.value) || Math.ceil(now() / HOUR) * HOUR + HOUR);
    const kinds = () => { form.querySelector("[data-for]").hidden = form.elements.kind.value === "maintenance"; };
    form.addEventListener("change", kinds);
    form.addEventListener("submit", () => { form.elements.start_at.value = String(Math.round(new Date(start.value).getTime() / 1000) || ""); });
    kinds();
  }

  let asked = 0;
  async function load() {
    const mine = ++asked;
    try {
      const answer = await fetch(box.dataset.schedule);
      if (!answer.ok) throw new Error();
      const told = await answer.json();
      if (mine !== asked || drag) return;
      data = told;
      trouble.hidden = true;
      box.querySelector(".loading")?.remove();
      layout();
    } catch {
      if (mine !== asked) return;
      trouble.hidden = false;
    }
  }

  document.addEventListener("htmx:sseMessage", (event) => { if (event.target.id === "schedule-table" && data) load(); });
  document.addEventListener("headway:theme", () => { colours(); draw(); });
  new ResizeObserver(() => { if (data) resize(); }).observe(scroll);
  setInterval(() => { if (!document.hidden && !drag) draw(); }, 30000);
  colours();
  load();
})();
