// Charts of the metrics that a training reports, drawn by uPlot:
//   <section data-training="/api/v1/clusters/lab/jobs/12/metrics"> (templates/parts/training_metrics.html)
// The section appears when the job has metrics. Choices are remembered in this browser. Arrow keys move a chart's cursor. Dragging
// zooms all charts; a double click, or the key 0, shows everything again.
"use strict";
(() => {
  const section = document.querySelector("[data-training]");
  if (!section) return;
  const { make, clock, axisWidth, table } = window.headwayCharts;
  const AGAIN_MS = 10000, HUES = 8, SYNC = "training-charts", FIRST = 4, MOST = 20, HEIGHT = 190, STORED = "headway-metrics";
  const address = section.dataset.training, task = section.dataset.task || "";
  const picker = section.querySelector("[data-pick]"), grid = section.querySelector("[data-grid]");
  const search = section.querySelector("[data-search]"), note = section.querySelector("[data-note]");
  const smooth = section.querySelector("[data-smooth]"), amount = section.querySelector("[data-amount]");
  const whole = section.querySelector("[data-whole]");
  const probes = Array.from({ length: HUES }, (_, i) => {
    const probe = document.createElement("i");
    probe.className = `charts__probe hue-${i}`;
    section.append(probe);
    return probe;
  });

  const choice = Object.assign({ x: "step", log: false, overlay: false, smooth: 0, picked: null }, remembered());
  let zoom = null; // [from, to] on the present horizontal axis, of all charts
  let tables = false;
  let listed = [], series = new Map(), runs = [], figures = [], seen = "", turn = 0;

  function remembered() {
    try { return JSON.parse(localStorage.getItem(STORED)) || {}; } catch { return {}; }
  }
  function remember() {
    try { localStorage.setItem(STORED, JSON.stringify(choice)); } catch { /* not remembered, still shown */ }
  }

  const number = (value) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    return size && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : value.toLocaleString("en", { maximumSignificantDigits: 5 });
  };
  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e9 || (size && size < 1e-3)) return value.toExponential(0);
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
    return size >= 1e4 ? `${+(value / 1e3).toPrecision(4)}k` : String(+value.toPrecision(4));
  };
  const steps = (value) => (value >= 1e6 ? `${+(value / 1e6).toPrecision(4)}M` : value.toLocaleString("en"));
  const where = (x) => (choice.x === "step" ? `step ${steps(x)}` : clock(x));
  // An exponential moving average; its beginning is corrected as if nothing had come before. Gaps stay gaps.
  function smoothed(values, weight) {
    if (!weight) return values;
    let sum = 0, mass = 0;
    return values.map((value) => {
      if (value == null) return null;
      sum = sum * weight + value * (1 - weight);
      mass = mass * weight + (1 - weight);
      return sum / mass;
    });
  }

  function picked() {
    const there = new Set(listed.map((one) => one.name));
    const chosen = (choice.picked || []).filter((name) => there.has(name));
    return (chosen.length ? chosen : listed.slice(0, FIRST).map((one) => one.name)).slice(0, MOST);
  }

  const query = (names) => {
    const words = new URLSearchParams(task ? { task } : {});
    for (const name of names) words.append("metric", name);
    return words;
  };

  async function get(path, words) {
    const answer = await fetch(`${address}${path}?${words}`, { headers: { accept: "application/json" } });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.detail || body.message || "The metrics can't be loaded.");
    return body;
  }

  async function load() {
    const now = ++turn;
    try {
      const found = await get("", query([]));
      if (now !== turn) return;
      listed = found.metrics;
      runs = found.runs;
      if (!listed.length) return;
      section.hidden = false;
      for (const button of section.querySelectorAll("[data-x=time]")) button.disabled = found.from_log; // a log has no times
      section.querySelector("a[download]").hidden = found.from_log;
      if (found.from_log && choice.x === "time") { choice.x = "step"; show_choice(); }
      say(found.from_log ? "Read from the log. headway_train reports every step, with times." : found.dropped ? `${found.dropped.toLocaleString("en")} reports are not kept, or not completely: ${found.note}.` : "");
      draw_picker();
      const names = picked(), version = JSON.stringify([names, listed.map((one) => [one.points, one.at]), runs]);
      if (version === seen) return;
      const points = Math.max(200, Math.min(2000, grid.clientWidth));
      const charts = await get("/series", new URLSearchParams([...query(names), ["points", String(points)]]));
      if (now !== turn) return;
      seen = version;
      series = new Map(charts.series.map((one) => [one.name, one]));
      draw();
    } catch (error) {
      if (now === turn && !section.hidden) say(error instanceof TypeError ? "The server does not answer." : error.message);
    }
  }

  function say(text) {
    note.textContent = text;
    note.hidden = !text;
  }

  function draw_picker() {
    const wanted = search.value.trim().toLowerCase(), chosen = new Set(picked());
    search.hidden = listed.length <= 12;
    const shown = listed.filter((one) => one.name.toLowerCase().includes(wanted));
    const version = JSON.stringify([shown.map((one) => one.name), [...chosen]]);
    if (picker.dataset.version === version) return;
    const focused = picker.contains(document.activeElement) ? document.activeElement.textContent : null;
    picker.dataset.version = version;
    picker.replaceChildren(...shown.map((one) => {
      const chip = make("button", "chip", one.name);
      chip.type = "button";
      chip.setAttribute("aria-pressed", String(chosen.has(one.name)));
      return chip;
    }));
    if (focused) [...picker.children].find((chip) => chip.textContent === focused)?.focus();
  }

  function colours() {
    const style = getComputedStyle(grid);
    return { text: style.color, grid: style.borderTopColor, lines: probes.map((probe) => getComputedStyle(probe).color) };
  }

  function draw() {
    for (const figure of figures) figure.plot?.destroy();
    const names = picked().filter((name) => series.has(name));
    const groups = choice.overlay && names.length > 1 ? [names] : names.map((name) => [name]);
    figures = groups.map((group) => new Figure(group));
    grid.classList.toggle("t-grid--one", groups.length === 1);
    grid.replaceChildren(...figures.map((figure) => figure.root));
    for (const figure of figures) figure.draw();
    section.dataset.drawn = names.join(" ");
  }

  class Figure {
    constructor(names) {
      this.names = names;
      this.root = make("figure", "fig");
      const head = make("figcaption", "fig__head");
      this.readout = make("span", "fig__readout num");
      const titles = make("span", "fig__title t-names");
      for (const name of names) {
        const title = make("span", names.length > 1 ? `t-name hue-${hue(name)}` : "", name);
        titles.append(title);
      }
      head.append(titles, this.readout);
      this.canvas = make("div", "fig__canvas t-canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      this.canvas.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
      this.root.append(head, this.canvas);
      const odd = names.filter((name) => series.get(name).not_finite.length);
      if (odd.length) this.root.append(make("p", "t-odd", odd.map((name) => unusual(name, names.length > 1)).join(" ")));
    }

    // Aligned columns of all lines: x, then for each metric its line and, where shown, lowest, highest and unsmoothed values.
    data() {
      const positive = (value) => (choice.log && value != null && value <= 0 ? null : value);
      this.lines = [];
      const tables = this.names.map((name) => {
        const one = series.get(name), columns = [choice.x === "step" ? one.steps : one.times];
        const add = (kind, values) => { this.lines.push({ name, kind }); columns.push(values.map(positive)); };
        add("line", smoothed(one.values, choice.smooth));
        if (choice.smooth) add("raw", one.values);
        else if (this.names.length === 1 && one.lows.some((low, i) => low !== one.highs[i])) {
          add("high", one.highs);
          add("low", one.lows);
        }
        return columns;
      });
      return tables.length > 1 ? uPlot.join(tables, tables.map((table) => table.slice(1).map(() => 2))) : tables[0];
    }

    draw() {
      const data = this.data(), c = colours(), at = (kind) => this.lines.findIndex((line) => line.kind === kind) + 1;
      const shown = data.slice(1).flat().filter((value) => value != null);
      this.describe(shown);
      if (tables) { this.show_table(data); return; }
      if (!shown.length) { this.canvas.append(make("p", "fig__none", choice.log ? "No positive values." : "No finite values.")); return; }
      const font = `11px ${getComputedStyle(document.body).fontFamily}`;
      const axis = { stroke: c.text, font, ticks: { show: false }, grid: { stroke: c.grid, width: 1 } };
      const few = data[0].length < 3;
      const stroke = { line: 1.75, raw: 1, high: 0, low: 0 };
      this.plot = new uPlot({
        width: this.canvas.clientWidth || 300,
        height: HEIGHT,
        padding: [8, 28, 0, 0],
        legend: { show: false },
        cursor: { y: false, sync: { key: SYNC }, drag: { x: true, y: false, setScale: false }, points: { size: 5 }, bind: { dblclick: () => () => { zoom_to(null); return null; } } },
        scales: { x: { time: false, range: (u, low, high) => zoom ?? [low, high] }, y: choice.log ? { distr: 3 } : { range: (u, low, high) => span(low, high) } },
        axes: [
          { ...axis, grid: { show: false }, size: 24, gap: 5, space: 80, values: (u, all) => all.map((x) => (choice.x === "step" ? (Number.isInteger(x) ? steps(x) : "") : clock(x).slice(0, 5))) },
          { ...axis, size: axisWidth, gap: 5, space: 34, values: (u, all) => all.map((y) => (y == null ? "" : short(y))) },
        ],
        series: [{}, ...this.lines.map(({ name, kind }) => {
          const colour = c.lines[this.names.length > 1 ? hue(name) : 0];
          return { label: name, stroke: kind === "raw" ? faint(colour, 0.3) : colour, width: stroke[kind], spanGaps: this.names.length > 1, points: { show: few && kind === "line", size: 5 } };
        })],
        bands: at("high") ? [{ series: [at("high"), at("low")], fill: faint(c.lines[0], 0.16) }] : [],
        hooks: { setCursor: [(u) => this.say(u.cursor.idx)], setSelect: [(u) => select(u)], draw: [(u) => this.restarts(u, c)] },
      }, data, this.canvas);
      this.say(null);
    }

    show_table(data) {
      const text = (value) => (value == null ? "" : number(value));
      const columns = this.lines.flatMap(({ name, kind }, i) => (kind === "line" ? [[name, data[i + 1], text]] : []));
      const horizontal = choice.x === "step" ? ["Step", data[0], steps] : ["Time", data[0], (at) => clock(at)];
      this.canvas.hidden = true;
      this.root.append(table(this.names.join(", "), [horizontal, ...columns]));
    }

    describe(shown) {
      const range = shown.length ? `between ${number(Math.min(...shown))} and ${number(Math.max(...shown))}` : "no finite values";
      this.canvas.setAttribute("aria-label", `${this.names.join(", ")} over ${choice.x === "step" ? "steps" : "time"}: ${range}. Arrow keys read the values.`);
    }

    // Draws where the training started again.
    restarts(u, c) {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = c.text;
      ctx.setLineDash([3, 3]);
      for (const run of runs.slice(1)) {
        const place = choice.x === "step" ? run.first_step : run.began;
        const x = place == null ? -1 : u.valToPos(place, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    }

    // Writes the values at the cursor, or the last ones.
    say(idx) {
      const data = this.plot.data;
      const text = this.lines.flatMap(({ name, kind }, i) => {
        if (kind !== "line") return [];
        let at = idx;
        if (at == null) for (at = data[0].length - 1; at > 0 && data[i + 1][at] == null; ) at -= 1;
        return [this.names.length > 1 ? `${name} ${number(data[i + 1][at])}` : number(data[i + 1][at])];
      }).join(" · ");
      const line = idx == null ? text : `${where(data[0][idx])} · ${text}`;
      if (this.readout.textContent !== line) this.readout.textContent = line;
    }

    key(event) {
      if (event.key === "0" && zoom) { event.preventDefault(); zoom_to(null); return; }
      const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (!move || !this.plot) return;
      event.preventDefault();
      const last = this.plot.data[0].length - 1, now = this.plot.cursor.idx ?? (move > 0 ? -1 : last + 1);
      const at = Math.min(last, Math.max(0, now + move));
      this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][at], "x"), top: HEIGHT / 2 });
    }

    resize() {
      const width = this.canvas.clientWidth;
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    }
  }

  // The mouse has chosen a part of the horizontal axis.
  function select(u) {
    if (u.select.width < 4) return;
    const range = [u.select.left, u.select.left + u.select.width].map((x) => u.posToVal(x, "x"));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    zoom_to(range);
  }

  function zoom_to(range) {
    zoom = range;
    whole.hidden = !zoom;
    for (const figure of figures) figure.plot?.setData(figure.plot.data);
  }

  const hue = (name) => picked().indexOf(name) % HUES;

  function faint(colour, alpha) {
    const [r, g, b] = colour.match(/[\d.]+/g);
    return `rgba(${r}, ${g}, ${b}, ${alpha})`;
  }

  function span(low, high) {
    if (low == null) return [0, 1];
    const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
    return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  }

  function unusual(name, say_name) {
    const one = series.get(name), all = one.not_finite, [step, word] = all[0];
    const at = one.points > one.steps.length ? "near" : "at"; // a point that stands for several has the last one's step
    return `${say_name ? `${name}: ` : ""}${word} ${at} step ${steps(step)}${all.length > 1 ? ` and ${all.length - 1} more` : ""}.`;
  }

  function show_choice() {
    for (const button of section.querySelectorAll("button[data-x]")) button.setAttribute("aria-pressed", String(button.dataset.x === choice.x));
    for (const button of section.querySelectorAll("button[data-tables]")) button.setAttribute("aria-pressed", String(button.dataset.tables === String(tables)));
    for (const button of section.querySelectorAll("button[data-switch]")) button.setAttribute("aria-pressed", String(choice[button.dataset.switch]));
    smooth.value = String(choice.smooth);
    amount.textContent = choice.smooth ? choice.smooth.toFixed(2) : "off";
  }

  function changed() {
    remember();
    show_choice();
    draw();
  }

  section.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button === whole) { zoom_to(null); return; }
    if (button.dataset.tables) tables = button.dataset.tables === "true";
    else if (button.dataset.x) {
      choice.x = button.dataset.x;
      zoom = null; // it was in steps or seconds
      whole.hidden = true;
    }
    else if (button.dataset.switch) choice[button.dataset.switch] = !choice[button.dataset.switch];
    else if (picker.contains(button)) {
      const name = button.textContent, now = picked();
      const next = now.includes(name) ? now.filter((one) => one !== name) : [...now, name];
      if (!next.length || next.length > MOST) return;
      choice.picked = next;
      remember();
      seen = "";
      load();
      return;
    } else return;
    changed();
  });
  smooth.addEventListener("input", () => { choice.smooth = Number(smooth.value); changed(); });
  search.addEventListener("input", draw_picker);
  document.addEventListener("headway:theme", () => { if (series.size) draw(); });
  new ResizeObserver(() => { for (const figure of figures) figure.resize(); }).observe(grid);

  show_choice();
  load();
  setInterval(() => { if (!document.hidden) load(); }, AGAIN_MS);
})();
