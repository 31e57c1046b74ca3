// Charts of metrics over time, drawn by uPlot:
//   <section data-charts="/api/v1/clusters/lab/metrics?node=lab-1-1&series=gpu_power" data-span="3600"></section>
// The answer is MetricsOut (schemas/metrics.py). Without data-span the address contains the times. Buttons with data-span in the
// section's .charts__spans change the span. Dragging over a chart, or the key +, zooms all charts of the section into that time;
// a double click, or the key 0, shows the whole span again. Arrow keys move a chart's cursor. Chips hide lines and marks. Charts
// with one line for each GPU have a heat map too (heat_map.js), and in charts of a job a note on the one that differs.
"use strict";
(() => {
  const { make, button, clock, axisWidth, table, lone } = window.headwayCharts;
  const heat_map = window.headwayHeatMap;
  const AGAIN_MS = 15000, HUES = 8, HEIGHT = 132, SHORTEST_S = 60, NEAR_PX = 6, MOST_CHIPS = 16, MOST_SHARED = 32;
  const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]]; // lines after the eighth repeat the colours
  const MARKS = { incident: "incident", drain: "drained", restart: "restart", checkpoint: "checkpoint" };
  const number = (value, unit) => {
    if (value == null) return "–";
    const text = value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : Math.abs(value) < 1000 ? 1 : 0 });
    return unit ? `${text} ${unit}` : text;
  };
  const short = (value) => {
    return Math.abs(value) >= 10000 ? `${+(value / 1000).toFixed(1)}k` : String(+value.toFixed(2));
  };

  class Group {
    constructor(box) {
      this.box = box;
      this.span = Number(box.dataset.span || 0);
      this.zoom = null; // [start, end] in unix seconds
      this.of_job = new URL(box.dataset.charts, location.href).searchParams.has("job");
      this.view = "charts"; // charts | heat | tables
      this.hidden = new Set(); // labels of lines, and kinds of marks as "mark:incident"
      this.figures = new Map();
      this.sync = `charts-${Math.random()}`;
      this.grid = box.querySelector(".charts__grid") || box.appendChild(make("div", "charts__grid"));
      this.grid.append(make("p", "loading", "Loading the charts …"));
      this.build_tools();
      this.probes = Array.from({ length: HUES }, (_, i) => box.appendChild(make("i", `charts__probe hue-${i}`)));
      this.states = Object.fromEntries(["limit", ...Object.keys(MARKS)].map((kind) => [kind, box.appendChild(make("i", `charts__probe mark-${kind}`))]));
      box.addEventListener("click", (event) => this.click(event));
      document.addEventListener("headway:theme", () => this.redraw());
      new ResizeObserver(() => this.resize()).observe(this.grid);
      this.load();
      const again = setInterval(() => {
        if (!box.isConnected) clearInterval(again); // its part of the page was replaced
        else if (!document.hidden && !this.zoom && !box.hasAttribute("data-still")) this.load();
      }, AGAIN_MS);
    }

    build_tools() {
      const tools = make("div", "charts__tools");
      this.legend = make("div", "charts__legend");
      this.whole = button("btn btn--small", "Whole time");
      this.whole.hidden = true;
      const view = make("div", "segments");
      view.setAttribute("role", "group");
      view.setAttribute("aria-label", "View");
      this.views = [["Charts", "charts"], ["Heat maps", "heat"], ["Tables", "tables"]].map(([word, name]) => {
        const one = button("", word, name === this.view);
        one.dataset.view = name;
        one.hidden = name === "heat"; // until a chart has one line for each GPU
        view.append(one);
        return one;
      });
      tools.append(this.legend, this.whole, view, ...this.box.querySelectorAll(".charts__spans"));
      this.grid.before(tools);
      this.events = make("ul", "charts__events");
      this.events.hidden = true;
      this.grid.after(this.events);
    }

    click(event) {
      const pressed = event.target.closest("button");
      if (!pressed) return;
      if (pressed === this.whole) this.zoom_to(null);
      else if (pressed.dataset.span) {
        for (const one of this.box.querySelectorAll("button[data-span]")) one.setAttribute("aria-pressed", String(one === pressed));
        this.span = Number(pressed.dataset.span);
        this.zoom_to(null);
      } else if (pressed.dataset.view) {
        this.view = pressed.dataset.view;
        for (const one of this.views) one.setAttribute("aria-pressed", String(one === pressed));
        this.redraw();
      } else if (pressed.dataset.line != null) {
        const name = pressed.dataset.line, hides = !this.hidden.delete(name);
        if (hides) this.hidden.add(name);
        for (const chip of this.box.querySelectorAll(".line-chip")) if (chip.dataset.line === name) chip.setAttribute("aria-pressed", String(!hides));
        for (const figure of this.figures.values()) figure.show_lines();
        this.list_events();
      }
    }

    // Large MiB values are shown as GiB.
    static readable(chart) {
      if (chart.unit !== "MiB") return chart;
      const lines = chart.lines.map((line) => ({ ...line, values: line.values.map((v) => (v == null ? null : v / 1024)) }));
      return { ...chart, unit: "GiB", lines, limits: chart.limits.map((one) => ({ ...one, value: one.value / 1024 })) };
    }

    zoom_to(range) {
      if (this.asked === this.span && same_range(range, this.zoom)) return; // uPlot tells each chart of one selection
      this.zoom = range && range.map(Math.round);
      this.asked = this.span;
      this.whole.hidden = !this.zoom;
      this.load();
    }

    async load() {
      const turn = this.turn = (this.turn || 0) + 1;
      const address = new URL(this.box.dataset.charts, location.href);
      if (this.zoom) {
        address.searchParams.set("start", String(this.zoom[0]));
        address.searchParams.set("end", String(this.zoom[1]));
      } else if (this.span) address.searchParams.set("start", String(-this.span));
      this.asked = this.span;
      try {
        const answer = await fetch(address, { headers: { accept: "application/json" } });
        const body = await answer.json();
        if (turn !== this.turn) return;
        if (answer.ok) this.show(body);
        else this.trouble(body.detail || body.message || "The charts can't be loaded.", body.hint || "");
      } catch {
        if (turn === this.turn) this.trouble("The server does not answer.", "The charts load when it answers again.");
      }
    }

    trouble(text, hint) {
      for (const figure of this.figures.values()) figure.plot?.destroy();
      this.figures.clear();
      const box = make("div", "trouble");
      box.setAttribute("role", "status");
      box.append(make("strong", "", text), make("span", "", hint));
      this.grid.replaceChildren(box);
      this.box.dataset.state = "trouble";
    }

    show(data) {
      this.data = data;
      this.marks = data.marks;
      if (!this.figures.size) this.grid.replaceChildren();
      const charts = data.charts.map(Group.readable), shared = Group.shared_lines(charts);
      this.write_legend(shared);
      this.views[1].hidden = !charts.some(by_gpu);
      for (const chart of charts) {
        let figure = this.figures.get(chart.key);
        if (!figure) {
          figure = new Figure(this, chart);
          this.figures.set(chart.key, figure);
          this.grid.append(figure.root);
        }
        figure.take(chart, data, shared);
      }
      this.list_events();
      this.box.dataset.state = "drawn";
      this.box.dataset.points = String(data.times.length);
      this.box.dataset.shown = `${data.start} ${data.end}`;
    }

    // Returns label -> colour of the lines that several charts have; their chips are above all charts.
    static shared_lines(charts) {
      const many = charts.filter((chart) => chart.lines.length > 1), found = new Map(), shared = new Map();
      for (const chart of many) for (const [i, line] of chart.lines.entries()) {
        if (found.has(line.label)) shared.set(line.label, found.get(line.label));
        else found.set(line.label, (line.gpu ?? i) % HUES);
      }
      return shared;
    }

    write_legend(shared) {
      const kinds = Object.keys(MARKS).filter((kind) => this.marks.some((mark) => mark.kind === kind));
      const chips = shared.size <= MOST_SHARED ? [...shared].map(([label, hue]) => line_chip(label, `hue-${hue}`, this.hidden, label)) : [];
      chips.push(...kinds.map((kind) => line_chip(MARKS[kind], `mark-${kind}`, this.hidden, `mark:${kind}`)));
      replace_chips(this.legend, chips);
    }

    // The marks as text: for screen readers, and with links.
    list_events() {
      const shown = this.shown_marks(), day = group_span(this.data) > 86400, version = JSON.stringify([day, shown]);
      if (this.listed === version) return; // so that the focus stays
      this.listed = version;
      this.events.replaceChildren(...shown.filter((mark) => mark.kind !== "checkpoint").slice(-8).reverse().map((mark) => {
        const item = make("li", `mark-${mark.kind}`), text = mark.href ? make("a", "link", mark.text) : make("span", "", mark.text);
        if (mark.href) text.href = mark.href;
        item.append(make("time", "num soft", clock(mark.at, day)), text);
        return item;
      }));
      this.events.hidden = !this.events.children.length;
    }

    shown_marks() { return this.marks.filter((mark) => !this.hidden.has(`mark:${mark.kind}`)); }

    colours() {
      const style = getComputedStyle(this.grid), colour = (probe) => getComputedStyle(probe).color;
      const states = Object.fromEntries(Object.entries(this.states).map(([kind, probe]) => [kind, colour(probe)]));
      return { text: style.color, grid: style.borderTopColor, lines: this.probes.map(colour), ...states };
    }

    redraw() { for (const figure of this.figures.values()) figure.draw(); }
    resize() { for (const figure of this.figures.values()) figure.resize(); }
  }

  const same_range = (a, b) => (a && b ? Math.abs(a[0] - b[0]) + Math.abs(a[1] - b[1]) < 0.02 * (b[1] - b[0]) : !a && !b);

  function line_chip(text, colour, hidden, name) {
    const chip = button(`line-chip ${colour}`, text, !hidden.has(name));
    chip.dataset.line = name;
    return chip;
  }

  // Replaces the chips only if there are others, so that the focus stays.
  function replace_chips(box, chips) {
    const version = chips.map((chip) => chip.dataset.line).join("\n");
    if (box.dataset.version === version) return;
    box.dataset.version = version;
    box.replaceChildren(...chips);
  }

  class Figure {
    constructor(group, chart) {
      this.group = group;
      this.root = make("figure", "fig");
      const caption = make("figcaption", "fig__head");
      this.readout = make("span", "fig__readout num");
      caption.append(make("span", "fig__title", chart.title), this.readout);
      this.canvas = make("div", "fig__canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.legend = make("div", "fig__legend");
      this.note = make("p", "fig__note");
      this.note.hidden = true;
      this.root.append(caption, this.canvas, this.legend, this.note);
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      this.canvas.addEventListener("focus", () => this.readout.setAttribute("aria-live", "polite")); // else each refresh would be read
      this.canvas.addEventListener("blur", () => {
        this.readout.removeAttribute("aria-live");
        this.plot?.setCursor({ left: -10, top: -10 });
      });
    }

    take(chart, data, shared) {
      const span = group_span(data), hues = chart.lines.map((line, i) => shared.get(line.label) ?? (line.gpu ?? i) % HUES);
      const names = chart.lines.map((line, i) => `${line.label} ${hues[i]}`).join("\n");
      const same = this.names === names && this.span > 86400 === span > 86400 && this.group.view === "charts";
      this.chart = chart;
      this.names = names;
      this.hues = hues;
      this.span = span;
      this.values = [data.times, ...chart.lines.map((line) => line.values)];
      const own = chart.lines.length > 1 && chart.lines.length <= MOST_CHIPS ? chart.lines.map((line, i) => [line, i]).filter(([line]) => !shared.has(line.label)) : [];
      replace_chips(this.legend, own.map(([line, i]) => line_chip(line.label, `hue-${hues[i]}`, this.group.hidden, line.label)));
      this.note_straggler();
      if (same && this.plot) {
        this.describe();
        this.plot.setData(this.values);
      } else this.draw();
      this.say(null);
    }

    is_heat() { return this.group.view === "heat" && by_gpu(this.chart); }
    is_shown(line) { return !this.group.hidden.has(line.label); }

    // Text for screen readers.
    describe() {
      const all = this.chart.lines.flatMap((line) => line.values.filter((value) => value != null));
      const unit = this.chart.unit;
      const range = all.length ? `between ${number(Math.min(...all), unit)} and ${number(Math.max(...all), unit)}` : "no measurements";
      const keys = this.is_heat() ? "" : " Arrow keys read the values, + zooms in, 0 shows the whole time.";
      this.canvas.setAttribute("aria-label", `${this.chart.title}, ${this.chart.lines.length} lines: ${range}.${keys} Tables are above the charts.`);
      this.canvas.toggleAttribute("data-empty", !all.length);
    }

    draw() {
      this.plot?.destroy();
      this.plot = null;
      this.canvas.replaceChildren();
      const { chart, values, group } = this, seen = values.slice(1).some((line) => line.some((value) => value != null));
      this.describe();
      this.canvas.hidden = group.view === "tables";
      if (group.view === "tables") { this.draw_table(); return; }
      this.root.querySelector(".fig__table")?.remove();
      if (!seen) { this.canvas.append(make("p", "fig__none", "No measurements in this time range.")); return; }
      const colours = group.colours(), many = chart.lines.length > 1;
      if (this.is_heat()) { this.draw_heat(colours); return; }
      const font = `11px ${getComputedStyle(document.body).fontFamily}`;
      const axis = { stroke: colours.text, font, ticks: { show: false }, grid: { stroke: colours.grid, width: 1 } };
      const day = this.span > 86400;
      this.plot = new uPlot({
        width: this.canvas.clientWidth || 300,
        height: HEIGHT,
        padding: [8, 28, 0, 0],
        legend: { show: false },
        cursor: {
          y: false, sync: { key: group.sync }, focus: { prox: many ? 20 : -1 }, drag: { x: true, y: false, setScale: true }, points: { size: 5 },
          bind: { dblclick: () => () => { group.zoom_to(null); return null; } },
        },
        focus: { alpha: 0.25 },
        scales: { x: { time: true }, y: { range: (u, low, high) => this.range(low, high) } },
        axes: [
          { ...axis, grid: { show: false }, size: 24, gap: 5, space: 52, values: (u, at) => at.map((t) => (day ? clock(t, true) : clock(t).slice(0, at[1] - at[0] < 60 ? 8 : 5))) },
          { ...axis, size: axisWidth, gap: 5, space: 34, values: (u, at) => at.map((value) => short(value)) },
        ],
        series: [{}, ...chart.lines.map((line, i) => ({
          label: line.label,
          show: this.is_shown(line),
          stroke: colours.lines[this.hues[i]],
          dash: DASHES[Math.floor(i / HUES) % DASHES.length],
          width: many ? 1.25 : 1.75,
          points: { show: false, size: 4, filter: (u, n) => lone(u.data[n]) },
        }))],
        hooks: {
          setCursor: [(u) => this.say(u.cursor.idx)],
          setSeries: [(u, i) => { this.near = i; this.say(u.cursor.idx); }],
          setSelect: [(u) => this.select(u)],
          draw: [(u) => this.draw_marks(u, colours)],
        },
      }, values, this.canvas);
    }

    // A table with the same columns gets new rows only, so that its focus and place stay.
    draw_table() {
      const { chart, values } = this, day = this.span > 86400, lines = chart.lines.filter((line) => this.is_shown(line));
      const columns = lines.map((line) => [`${line.label}${chart.unit ? `, ${chart.unit}` : ""}`, line.values, (value) => number(value, "")]);
      const made = table(chart.title, [["Time", values[0], (at) => clock(at, day)], ...columns]), old = this.root.querySelector(".fig__table");
      if (old && ["caption", "thead"].every((part) => old.querySelector(part).textContent === made.querySelector(part).textContent)) {
        old.querySelector("tbody").replaceWith(made.querySelector("tbody"));
        return;
      }
      old?.remove();
      this.legend.before(made);
    }

    draw_heat(colours) {
      const lines = this.chart.lines.filter((line) => this.is_shown(line)), all = lines.flatMap((line) => line.values.filter((value) => value != null));
      if (!all.length) return;
      const range = this.chart.unit === "%" ? [0, 100] : [Math.min(...all), Math.max(...all)];
      heat_map.draw(this.canvas, lines, range, colours, (line, at) => {
        if (!line) this.say(null);
        else this.write(`${clock(this.values[0][at], this.span > 86400)} · ${line.label}: ${number(line.values[at], this.chart.unit)}`);
      });
    }

    // Says which GPU of a job differs from all others. The GPUs of a node may have different jobs, so they are not compared.
    note_straggler() {
      const { chart, group } = this, compares = group.of_job && by_gpu(chart) && chart.key in LEAST_DIFFERENCES;
      const found = compares ? heat_map.straggler(chart.lines, LEAST_DIFFERENCES[chart.key]) : null;
      const text = found ? `${found.line.label} differs: ${number(found.mean, chart.unit)} on average, the others ${number(found.others, chart.unit)}.` : "";
      if (this.note.textContent !== text) this.note.textContent = text;
      this.note.hidden = !text;
    }

    show_lines() {
      if (this.group.view !== "charts") this.draw();
      else if (this.plot) {
        this.plot.batch(() => this.chart.lines.forEach((line, i) => {
          if (this.plot.series[i + 1].show !== this.is_shown(line)) this.plot.setSeries(i + 1, { show: this.is_shown(line) });
        }));
        this.plot.redraw(false);
        this.say(null);
      }
    }

    // The mouse has chosen a part of the time.
    select(u) {
      if (u.select.width < 4) return;
      const [start, end] = [u.select.left, u.select.left + u.select.width].map((x) => u.posToVal(x, "x"));
      this.zoom_around((start + end) / 2, end - start);
    }

    zoom_around(middle, span) {
      const { start, end } = this.group.data, half = Math.max(SHORTEST_S, span) / 2;
      this.group.zoom_to([Math.max(start, middle - half), Math.min(end, middle + half)]);
    }

    range(low, high) {
      if (low == null) return [0, 1];
      if (this.chart.unit === "%") return [0, 100];
      const limit = Math.max(0, ...this.chart.limits.map((one) => one.value).filter((value) => value < 2 * high));
      if (this.chart.unit === "°C") return [Math.max(0, low - 5), Math.max(high, limit) + 5];
      return [0, Math.max(high * 1.08, limit * 1.04, high < 1 ? high + 0.2 : high + 1)];
    }

    // Draws limits as horizontal and events as vertical lines.
    draw_marks(u, colours) {
      const { ctx, bbox } = u, dot = devicePixelRatio;
      ctx.save();
      ctx.lineWidth = dot;
      ctx.setLineDash([3 * dot, 3 * dot]);
      for (const limit of this.chart.limits) {
        const y = u.valToPos(limit.value, "y", true);
        if (y < bbox.top || y > bbox.top + bbox.height) continue;
        ctx.strokeStyle = colours.limit;
        stroke(ctx, bbox.left, y, bbox.left + bbox.width, y);
      }
      for (const mark of this.group.shown_marks()) {
        const x = u.valToPos(mark.at, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.strokeStyle = ctx.fillStyle = colours[mark.kind];
        const short_mark = mark.kind === "checkpoint"; // there may be many: ticks at the bottom
        stroke(ctx, x, short_mark ? bbox.top + bbox.height - 7 * dot : bbox.top, x, bbox.top + bbox.height);
        if (!short_mark) ctx.fillRect(x - 2.5 * dot, bbox.top - 4 * dot, 5 * dot, 5 * dot);
      }
      ctx.restore();
    }

    // Writes the values at the cursor, or the last values: of the nearest line, or the range of all lines.
    say(at) {
      const { chart, values } = this, unit = chart.unit, lines = chart.lines.filter((line) => this.is_shown(line));
      let i = at;
      if (i == null) for (i = values[0].length - 1; i > 0 && !lines.some((line) => line.values[i] != null); ) i -= 1;
      const there = lines.map((line) => line.values[i]).filter((value) => value != null);
      let text = there.length ? number(there[0], unit) : "–";
      if (there.length > 1) {
        const low = Math.min(...there), high = Math.max(...there);
        text = low === high ? number(low, unit) : `${number(low, "")} – ${number(high, unit)}`;
      }
      const line = at != null && this.near ? chart.lines[this.near - 1] : null;
      if (line && this.is_shown(line) && lines.length > 1) text = `${line.label}: ${number(line.values[i], unit)}`;
      if (at == null) text += chart.limits.map((one) => `, limit ${number(one.value, unit)}`).join("");
      if (at != null) text = `${this.mark_at(values[0][i]) ?? clock(values[0][i], this.span > 86400)} · ${text}`;
      this.write(text);
    }

    write(text) { if (this.readout.textContent !== text) this.readout.textContent = this.readout.title = text; }

    // Returns the text of an event at the cursor.
    mark_at(at) {
      const u = this.plot, x = u.valToPos(at, "x");
      return this.group.shown_marks().find((mark) => Math.abs(u.valToPos(mark.at, "x") - x) < NEAR_PX)?.text;
    }

    key(event) {
      const u = this.plot;
      if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      const last = this.values[0].length - 1, at = u.cursor.idx;
      if (step) {
        const now = at ?? (step > 0 ? -1 : last + 1), next = Math.min(last, Math.max(0, now + step));
        u.setCursor({ left: u.valToPos(this.values[0][next], "x"), top: HEIGHT / 2 });
      } else if (event.key === "+") this.zoom_around(this.values[0][at ?? Math.floor(last / 2)], this.span / 2);
      else if (event.key === "0" || event.key === "-") this.group.zoom_to(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }

    resize() {
      const width = this.canvas.clientWidth;
      if (!this.plot && this.is_heat()) this.draw();
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    }
  }

  function stroke(ctx, x0, y0, x1, y1) {
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
  }

  // Charts in which one GPU that differs slows a training down, or is in danger, and the least difference in the chart's unit.
  const LEAST_DIFFERENCES = { gpu_utilisation: 5, gpu_power: 35, gpu_temperature: 5 };
  const by_gpu = (chart) => chart.lines.length > 1 && chart.lines.every((line) => line.gpu != null);
  const group_span = (data) => data.end - data.start;
  const begin = (root) => {
    for (const box of root.querySelectorAll("[data-charts]:not([data-state])")) { box.dataset.state = "reading"; new Group(box); }
  };
  begin(document);
  document.addEventListener("htmx:afterSwap", (event) => begin(event.target));

  // A stream that reconnects sends the whole page part again. Charts with the same address stay.
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const box = event.target.querySelector("[data-charts]");
    const fresh = box && new DOMParser().parseFromString(event.detail.data, "text/html").querySelector("[data-charts]");
    if (fresh && fresh.dataset.charts === box.dataset.charts) event.preventDefault();
  });
})();
