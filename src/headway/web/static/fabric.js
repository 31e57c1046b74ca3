// The fabric map: leaf switches, their nodes, one cell per GPU, drawn on one canvas from /clusters/NAME/fabric. The colour shows
// state or utilisation; an outline around neighbouring cells shows their job. Arrow keys move between nodes, Enter opens a node.
"use strict";
(() => {
  const box = document.querySelector("[data-fabric]");
  if (!box) return;
  const AGAIN_MS = 5000, HUES = 8, ACROSS = 4;
  const canvas = box.querySelector("canvas"), said = box.querySelector(".fabric__said"), tip = box.querySelector(".fabric__tip");
  const ctx = canvas.getContext("2d");
  let data = null, tiles = [], heads = [], view = "state", at = -1, size = null, job = 0;

  // All colours come from the stylesheet.
  let colour = {};
  const KINDS = ["free", "spare", "bad", "warn", "start", "line", "text", "soft", "use", "surface"];
  function colours() {
    const probe = box.querySelector(".fabric__probe");
    colour = { hues: [] };
    for (const kind of KINDS) { probe.className = `fabric__probe is-${kind}`; colour[kind] = getComputedStyle(probe).color; }
    for (let i = 0; i < HUES; i += 1) { probe.className = `fabric__probe hue-${i}`; colour.hues.push(getComputedStyle(probe).color); }
  }

  const LARGE = { cell: 15, gap: 3, name: true, across: 8 }, MIDDLE = { cell: 9, gap: 2, name: false, across: ACROSS }, SMALL = { cell: 6, gap: 1, name: false, across: ACROSS };

  // Computes the positions of nodes for the present width.
  function layout() {
    const width = box.clientWidth, count = data.leaves.reduce((sum, leaf) => sum + leaf.nodes.length, 0);
    size = count <= 64 ? LARGE : count <= 320 ? MIDDLE : SMALL;
    const most = Math.max(1, ...data.leaves.flatMap((leaf) => leaf.nodes.map((node) => node[4].length)));
    const across = Math.min(size.across, most), down = Math.ceil(most / across), step = size.cell + size.gap;
    const pad = size.name ? 7 : size.gap + 1, top = size.name ? 20 : pad;
    const tile = { w: across * step - size.gap + 2 * pad, h: down * step - size.gap + pad + top };
    if (size.name) tile.w = Math.max(tile.w, 112);
    const space = size.name ? 8 : 3, head = 20, between = 18;
    tiles = [];
    heads = [];
    let x = 0, y = 0, low = 0;
    for (const leaf of data.leaves) {
      const fit = Math.max(1, Math.floor((width + space) / (tile.w + space)));
      const columns = Math.min(leaf.nodes.length, size.name ? fit : Math.min(fit, 8));
      const w = columns * (tile.w + space) - space, rows = Math.ceil(leaf.nodes.length / columns);
      const h = head + rows * (tile.h + space) - space;
      if (x && x + w > width) { x = 0; y = low + between; }
      heads.push({ x, y, w: Math.max(w, 60), leaf });
      leaf.nodes.forEach((node, i) => {
        tiles.push({ node, leaf, x: x + (i % columns) * (tile.w + space), y: y + head + Math.floor(i / columns) * (tile.h + space), w: tile.w, h: tile.h, pad, top, across, step, columns });
      });
      x += w + between;
      low = Math.max(low, y + h);
    }
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((low + 2) * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${low + 2}px`;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  const hue = (number) => colour.hues[number % HUES];

  function fill([, kind, , spare, , use], held, i) {
    if (view === "use" && use.length && kind !== "down") return use[i] == null ? colour.free : null;
    if (kind === "down") return colour.bad;
    if (kind === "drain" && !held) return colour.warn;
    if (kind === "start") return colour.start;
    if (held) return hue(held);
    return spare ? "hatch" : colour.free;
  }

  // A free GPU of a spare: an outline with diagonal lines, so that it differs from all jobs also without colours.
  function hatch(x, y, cell) {
    ctx.save();
    ctx.strokeStyle = colour.spare;
    ctx.lineWidth = 1;
    ctx.strokeRect(x + .5, y + .5, cell - 1, cell - 1);
    ctx.beginPath();
    ctx.rect(x, y, cell, cell);
    ctx.clip();
    ctx.beginPath();
    for (let at = 4; at < 2 * cell; at += 4) { ctx.moveTo(x, y + at); ctx.lineTo(x + at, y); }
    ctx.stroke();
    ctx.restore();
  }

  function drawTile(tile, index) {
    const { node, x, y, pad, top, across, step } = tile, [name, kind, , spare, jobs] = node, cell = size.cell;
    ctx.globalAlpha = 1;
    ctx.lineWidth = index === at ? 2 : 1;
    ctx.strokeStyle = index === at ? colour.use : kind === "down" ? colour.bad : kind === "drain" ? colour.warn : colour.line;
    ctx.setLineDash(spare && index !== at ? [3, 2] : []);
    ctx.beginPath();
    ctx.roundRect(x + .5, y + .5, tile.w - 1, tile.h - 1, size.name ? 7 : 3);
    ctx.stroke();
    ctx.setLineDash([]);
    if (size.name) {
      ctx.fillStyle = kind === "down" ? colour.bad : colour.text;
      ctx.font = `560 11px ${font}`;
      ctx.fillText(name.length > 16 ? `…${name.slice(-15)}` : name, x + pad, y + 14);
    }
    const cells = jobs.length ? jobs : [0];
    cells.forEach((held, i) => {
      const cx = x + pad + (i % across) * step, cy = y + top + Math.floor(i / across) * step;
      const paint = fill(node, held, i);
      ctx.globalAlpha = job && held !== job ? .28 : 1;
      if (paint === "hatch") { hatch(cx, cy, cell); return; }
      ctx.fillStyle = paint || colour.free;
      ctx.fillRect(cx, cy, cell, cell);
      if (!paint) {
        ctx.fillStyle = colour.use;
        ctx.globalAlpha *= .12 + .88 * Math.min(100, node[5][i]) / 100;
        ctx.fillRect(cx, cy, cell, cell);
      }
      if (kind === "down" && cell >= 9) {
        ctx.globalAlpha = 1;
        ctx.strokeStyle = colour.surface;
        ctx.beginPath();
        ctx.moveTo(cx + 3, cy + 3); ctx.lineTo(cx + cell - 3, cy + cell - 3);
        ctx.moveTo(cx + cell - 3, cy + 3); ctx.lineTo(cx + 3, cy + cell - 3);
        ctx.stroke();
      }
    });
    outline(tile, cells);
  }

  // Draws one outline around neighbouring cells of a row that belong to the same job.
  function outline(tile, cells) {
    const { x, y, pad, top, across, step } = tile;
    for (let i = 0; i < cells.length; ) {
      let last = i;
      while (cells[last + 1] === cells[i] && Math.floor((last + 1) / across) === Math.floor(i / across)) last += 1;
      if (cells[i]) {
        ctx.globalAlpha = job && cells[i] !== job ? .28 : 1;
        ctx.strokeStyle = hue(cells[i]);
        ctx.lineWidth = cells[i] === job ? 2 : 1;
        ctx.strokeRect(x + pad + (i % across) * step - 1, y + top + Math.floor(i / across) * step - 1, (last - i) * step + size.cell + 2, size.cell + 2);
      }
      i = last + 1;
    }
    ctx.globalAlpha = 1;
  }

  let font = "sans-serif";
  function draw() {
    if (!data) return;
    const began = performance.now();
    font = getComputedStyle(document.body).fontFamily;
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    for (const { x, y, w, leaf } of heads) {
      const all = leaf.nodes.reduce((sum, node) => sum + node[4].length, 0), used = leaf.nodes.reduce((sum, node) => sum + node[4].filter(Boolean).length, 0);
      ctx.fillStyle = colour.text;
      ctx.font = `560 12px ${font}`;
      ctx.fillText(leaf.name, x, y + 11);
      const after = x + ctx.measureText(leaf.name).width + 7;
      ctx.fillStyle = colour.soft;
      ctx.font = `400 11.5px ${font}`;
      const text = `${used}/${all}`;
      if (all && after + ctx.measureText(text).width <= x + w + 10) ctx.fillText(text, after, y + 11);
    }
    tiles.forEach(drawTile);
    box.dataset.nodes = String(tiles.length);
    box.dataset.drawMs = (performance.now() - began).toFixed(1);
  }

  function words({ node, leaf }) {
    const [name, , word, spare, jobs, use] = node, held = new Map();
    for (const number of jobs) if (number) held.set(number, (held.get(number) || 0) + 1);
    const on = [...held].map(([number, n]) => `job ${number} ${data.jobs[number] || ""} on ${n}`);
    const known = use.filter((value) => value != null);
    const mean = known.length ? `, ${Math.round(known.reduce((a, b) => a + b, 0) / known.length)} % busy` : "";
    return `${name}${spare ? " (spare)" : ""}, ${leaf.name}: ${word}${jobs.length ? `, ${jobs.filter(Boolean).length} of ${jobs.length} GPUs in use` : ""}${mean}${on.length ? `; ${on.slice(0, 4).join(", ")}${on.length > 4 ? ` and ${on.length - 4} more` : ""}` : ""}`;
  }

  function choose(index, number, speak) {
    if (index === at && number === job) return;
    at = index;
    job = number;
    draw();
    const tile = tiles[at];
    tip.hidden = !tile;
    if (!tile) return;
    tip.textContent = words(tile);
    const left = Math.min(tile.x, box.clientWidth - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${tile.y + tile.h + 6}px`;
    if (speak) said.textContent = tip.textContent;
  }

  function under(event) {
    const edge = canvas.getBoundingClientRect(), px = event.clientX - edge.left, py = event.clientY - edge.top;
    const index = tiles.findIndex((t) => px >= t.x && px < t.x + t.w && py >= t.y && py < t.y + t.h);
    if (index < 0) return [-1, 0];
    const t = tiles[index], column = Math.floor((px - t.x - t.pad) / t.step), row = Math.floor((py - t.y - t.top) / t.step);
    const inside = column >= 0 && column < t.across && row >= 0;
    return [index, (inside && t.node[4][row * t.across + column]) || 0];
  }

  const open = (index) => { if (tiles[index]) location.href = `${box.dataset.node}${encodeURIComponent(tiles[index].node[0])}`; };
  canvas.addEventListener("pointermove", (event) => choose(...under(event)));
  canvas.addEventListener("pointerleave", () => choose(-1, 0));
  canvas.addEventListener("click", (event) => open(under(event)[0]));
  canvas.addEventListener("blur", () => choose(-1, 0));
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { open(at); return; }
    const columns = tiles[Math.max(0, at)]?.columns || 1;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !tiles.length) return;
    event.preventDefault();
    choose(Math.min(tiles.length - 1, Math.max(0, at < 0 ? 0 : at + step)), 0, true);
  });
  box.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-view]");
    if (!button) return;
    view = button.dataset.view;
    for (const one of box.querySelectorAll("button[data-view]")) one.setAttribute("aria-pressed", String(one === button));
    box.dataset.view = view;
    load();
  });

  let asked = 0;
  let shown = 0; // number of the request whose answer is drawn
  async function load() {
    const mine = ++asked;
    const seen = view;
    const late = () => mine < shown || seen !== view; // a later answer is already drawn, or the view has changed
    const trouble = box.querySelector(".fabric__trouble");
    try {
      const answer = await fetch(`${box.dataset.fabric}${seen === "use" ? "?use=1" : ""}`);
      if (!answer.ok) throw new Error();
      const told = await answer.json();
      if (late()) return;
      shown = mine;
      data = told;
      box.querySelector(".loading")?.remove();
      trouble.hidden = !data.trouble;
      trouble.textContent = data.trouble;
      const under = tiles[at]?.node[0];
      layout();
      at = under ? tiles.findIndex((tile) => tile.node[0] === under) : -1;
      draw();
    } catch {
      if (late()) return;
      trouble.hidden = false;
      trouble.textContent = "The server does not answer; the map updates when it answers again.";
    }
  }

  document.addEventListener("headway:theme", () => { colours(); draw(); });
  let width = box.clientWidth;
  new ResizeObserver(() => { if (data && box.clientWidth !== width) { width = box.clientWidth; layout(); draw(); } }).observe(box);
  colours();
  load();
  setInterval(() => { if (!document.hidden) load(); }, AGAIN_MS);
})();
