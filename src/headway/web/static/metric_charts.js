// Charts of metrics over time, drawn by uPlot:
//   <section data-charts="/api/v1/clusters/lab/metrics?node=lab-1-1&series=gpu_power" data-span="3600"></section>
// The answer is MetricsOut (schemas/metrics.py). Without data-span the address contains the times. Buttons with data-span in the
// section's .charts__spans change the span; data-marks='[[1700000000, "restart"]]' draws events. Arrow keys move a chart's cursor.
"use strict";
(() => {
  const AGAIN_MS = 15000, HUES = 8, HEIGHT = 132;
  const number = (value, unit) => {
    if (value == null) return "–";
    const text = value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : Math.abs(value) < 1000 ? 1 : 0 });
    return unit ? `${text} ${unit}` : text;
  };
  const short = (value) => {
    return Math.abs(value) >= 10000 ? `${+(value / 1000).toFixed(1)}k` : String(+value.toFixed(2));
  };
  const pad = (n) => String(n).padStart(2, "0");
  const clock = (at, day) => {
    const d = new Date(at * 1000), time = `${pad(d.getHours())}:${pad(d.getMinutes())}`;
    return day ? `${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${time}` : `${time}:${pad(d.getSeconds())}`;
  };
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    element.className = name;
    if (text != null) element.textContent = text;
    return element;
  };

  class Group {
    constructor(box) {
      this.box = box;
      this.span = Number(box.dataset.span || 0);
      this.figures = new Map();
      this.marks = JSON.parse(box.dataset.marks || "[]");
      this.sync = `charts-${Math.random()}`;
      this.grid = box.querySelector(".charts__grid") || box.appendChild(make("div", "charts__grid"));
      this.grid.append(make("p", "loading", "Loading the charts …"));
      this.probes = Array.from({ length: HUES }, (_, i) => box.appendChild(make("i", `charts__probe hue-${i}`)));
      box.addEventListener("click", (event) => {
        const button = event.target.closest("button[data-span]");
        if (!button) return;
        for (const one of box.querySelectorAll("button[data-span]")) one.setAttribute("aria-pressed", String(one === button));
        this.span = Number(button.dataset.span);
        this.load();
      });
      document.addEventListener("headway:theme", () => this.redraw());
      new ResizeObserver(() => this.resize()).observe(this.grid);
      this.load();
      const again = setInterval(() => {
        if (!box.isConnected) clearInterval(again); // its part of the page was replaced
        else if (!document.hidden && !box.hasAttribute("data-still")) this.load();
      }, AGAIN_MS);
    }

    // Large MiB values are shown as GiB.
    static readable(chart) {
      if (chart.unit !== "MiB") return chart;
      const lines = chart.lines.map((line) => ({ ...line, values: line.values.map((v) => (v == null ? null : v / 1024)) }));
      return { ...chart, unit: "GiB", lines };
    }

    async load() {
      const turn = this.turn = (this.turn || 0) + 1;
      const address = new URL(this.box.dataset.charts, location.href);
      if (this.span) address.searchParams.set("start", String(-this.span));
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
      if (!this.figures.size) this.grid.replaceChildren();
      for (const chart of data.charts.map(Group.readable)) {
        let figure = this.figures.get(chart.key);
        if (!figure) {
          figure = new Figure(this, chart);
          this.figures.set(chart.key, figure);
          this.grid.append(figure.root);
        }
        figure.take(chart, data);
      }
      this.box.dataset.state = "drawn";
      this.box.dataset.points = String(data.times.length);
    }

    colours() {
      const style = getComputedStyle(this.grid);
      return { text: style.color, grid: style.borderTopColor, lines: this.probes.map((probe) => getComputedStyle(probe).color) };
    }

    redraw() { for (const figure of this.figures.values()) figure.draw(); }
    resize() { for (const figure of this.figures.values()) figure.resize(); }
  }

  class Figure {
    constructor(group, chart) {
      this.group = group;
      this.root = make("figure", "fig");
      const caption = make("figcaption", "fig__head");
      this.readout = make("span", "fig__readout num");
      this.readout.setAttribute("aria-live", "polite");
      caption.append(make("span", "fig__title", chart.title), this.readout);
      this.canvas = make("div", "fig__canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.root.append(caption, this.canvas);
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      this.canvas.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
    }

    take(chart, data) {
      const same = this.chart && this.chart.lines.length === chart.lines.length && this.span === group_span(data);
      this.chart = chart;
      this.span = group_span(data);
      this.values = [data.times, ...chart.lines.map((line) => line.values)];
      this.describe();
      if (same && this.plot) this.plot.setData(this.values);
      else this.draw();
      this.say(null);
    }

    // Text for screen readers.
    describe() {
      const all = this.chart.lines.flatMap((line) => line.values.filter((value) => value != null));
      const unit = this.chart.unit;
      const range = all.length ? `between ${number(Math.min(...all), unit)} and ${number(Math.max(...all), unit)}` : "no measurements";
      this.canvas.setAttribute("aria-label", `${this.chart.title}, ${this.chart.lines.length} lines: ${range}. Arrow keys read the values.`);
      this.canvas.toggleAttribute("data-empty", !all.length);
    }

    draw() {
      this.plot?.destroy();
      this.canvas.replaceChildren();
      const { chart, values } = this, seen = values.slice(1).some((line) => line.some((value) => value != null));
      if (!seen) { this.plot = null; this.canvas.append(make("p", "fig__none", "No measurements in this time range.")); return; }
      const colours = this.group.colours(), many = chart.lines.length > 1;
      const font = `11px ${getComputedStyle(document.body).fontFamily}`;
      const axis = { stroke: colours.text, font, ticks: { show: false }, grid: { stroke: colours.grid, width: 1 } };
      const day = this.span > 86400;
      this.plot = new uPlot({
        width: this.canvas.clientWidth || 300,
        height: HEIGHT,
        padding: [8, 16, 0, 0],
        legend: { show: false },
        cursor: { y: false, sync: { key: this.group.sync }, focus: { prox: many ? 20 : -1 }, drag: { x: false, y: false }, points: { size: 5 } },
        focus: { alpha: 0.25 },
        scales: { x: { time: true }, y: { range: (u, low, high) => this.range(low, high) } },
        axes: [
          { ...axis, grid: { show: false }, size: 24, gap: 5, space: 70, values: (u, at) => at.map((t) => (day ? clock(t, true) : clock(t).slice(0, at[1] - at[0] < 60 ? 8 : 5))) },
          { ...axis, size: 46, gap: 5, space: 34, values: (u, at) => at.map((value) => short(value)) },
        ],
        series: [{}, ...chart.lines.map((line, i) => ({
          label: line.label,
          stroke: colours.lines[(line.gpu ?? i) % HUES],
          width: many ? 1.25 : 1.75,
          points: { show: false },
        }))],
        hooks: {
          setCursor: [(u) => this.say(u.cursor.idx)],
          setSeries: [(u, i) => { this.near = i; this.say(u.cursor.idx); }],
          draw: [(u) => this.moments(u, colours)],
        },
      }, values, this.canvas);
    }

    range(low, high) {
      if (low == null) return [0, 1];
      if (this.chart.unit === "%") return [0, 100];
      if (this.chart.unit === "°C") return [Math.max(0, low - 5), high + 5];
      return [0, Math.max(high * 1.08, high + 1)];
    }

    // Draws restarts and incidents as dashed lines.
    moments(u, colours) {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.strokeStyle = colours.text;
      ctx.fillStyle = colours.text;
      ctx.font = `${10 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
      ctx.setLineDash([3, 3]);
      for (const [at, word] of this.group.marks) {
        const x = u.valToPos(at, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.fillText(word, x + 4, bbox.top + 10 * devicePixelRatio);
      }
      ctx.restore();
    }

    // Writes the values at the cursor, or the last values: of the nearest line, or the range of all lines.
    say(at) {
      const { chart, values } = this, unit = chart.unit;
      let i = at;
      if (i == null) for (i = values[0].length - 1; i > 0 && !chart.lines.some((line) => line.values[i] != null); ) i -= 1;
      const there = chart.lines.map((line) => line.values[i]).filter((value) => value != null);
      let text = there.length ? number(there[0], unit) : "–";
      if (there.length > 1) {
        const low = Math.min(...there), high = Math.max(...there);
        text = low === high ? number(low, unit) : `${number(low, "")} – ${number(high, unit)}`;
      }
      const line = at != null && this.near ? chart.lines[this.near - 1] : null;
      if (line && chart.lines.length > 1) text = `${line.label}: ${number(line.values[i], unit)}`;
      if (at != null) text = `${clock(values[0][i], this.span > 86400)} · ${text}`;
      if (this.readout.textContent !== text) this.readout.textContent = text;
    }

    key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (!step || !this.plot) return;
      event.preventDefault();
      const last = this.values[0].length - 1, now = this.plot.cursor.idx ?? (step > 0 ? -1 : last + 1);
      const at = Math.min(last, Math.max(0, now + step));
      this.plot.setCursor({ left: this.plot.valToPos(this.values[0][at], "x"), top: HEIGHT / 2 });
    }

    resize() {
      const width = this.canvas.clientWidth;
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    }
  }

  const group_span = (data) => data.end - data.start;
  const begin = (root) => {
    for (const box of root.querySelectorAll("[data-charts]:not([data-state])")) { box.dataset.state = "reading"; new Group(box); }
  };
  begin(document);
  document.addEventListener("htmx:afterSwap", (event) => begin(event.target));

  // A stream that reconnects sends the whole page part again. Charts with the same address and marks stay.
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const box = event.target.querySelector("[data-charts]");
    const fresh = box && new DOMParser().parseFromString(event.detail.data, "text/html").querySelector("[data-charts]");
    if (fresh && ["charts", "marks"].every((key) => fresh.dataset[key] === box.dataset[key])) event.preventDefault();
  });
})();
