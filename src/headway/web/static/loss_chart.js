// The loss of one job, drawn by uPlot. The first points are in the page, later ones in `chart` events.
"use strict";
(() => {
  const box = document.getElementById("chart");
  if (!box) return;
  let job = 0, hue = 0, steps = [], loss = [], plot = null;

  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 3 });
  const READOUT_PX = 20;
  const size = () => ({ width: box.clientWidth, height: Math.max(120, box.clientHeight - READOUT_PX) });

  // All colours come from the stylesheet; the canvas uses the computed values.
  function colours() {
    const style = getComputedStyle(box);
    return { line: style.caretColor, text: style.color, grid: style.borderTopColor };
  }

  function fade(colour, u) {
    const parts = colour.match(/[\d.]+/g);
    if (!parts || !u.bbox.height) return "transparent";
    const [r, g, b] = parts;
    const down = u.ctx.createLinearGradient(0, u.bbox.top, 0, u.bbox.top + u.bbox.height);
    down.addColorStop(0, `rgba(${r}, ${g}, ${b}, .20)`);
    down.addColorStop(1, `rgba(${r}, ${g}, ${b}, 0)`);
    return down;
  }

  // Shows the values under the pointer above the chart.
  function readout() {
    const line = document.createElement("p");
    line.className = "chart__readout num";
    return {
      hooks: {
        init: (u) => u.root.prepend(line),
        setCursor: (u) => {
          const at = u.cursor.idx;
          const seen = at != null && u.data[1][at] != null;
          line.textContent = seen ? `step ${number(u.data[0][at])} · loss ${u.data[1][at].toFixed(3)}` : "loss over steps";
        },
      },
    };
  }

  function draw() {
    if (plot) plot.destroy();
    box.replaceChildren();
    const c = colours();
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: c.text, font, grid: { stroke: c.grid, width: 1 }, ticks: { show: false } };
    plot = new uPlot({
      ...size(),
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 7, fill: c.line, stroke: c.line }, drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (u, low, high) => span(low, high) } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, gap: 6, space: 64, incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7] },
        { ...axis, size: 36, gap: 6, space: 36 },
      ],
      series: [{}, { stroke: c.line, width: 2, fill: (u) => fade(c.line, u), points: { show: steps.length < 3, size: 6, fill: c.line } }],
      plugins: [readout()],
    }, [steps, loss], box);
  }

  function span(low, high) {
    if (low == null || high == null) return [0, 1];
    const room = Math.max((high - low) * 0.12, 0.05);
    return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
  }

  function say() {
    box.hidden = steps.length === 0;
    const text = steps.length
      ? `Loss of job ${job}: from ${number(loss[0])} at step ${number(steps[0])} to ${number(loss.at(-1))} at step ${number(steps.at(-1))}`
      : "No loss yet";
    box.setAttribute("aria-label", text);
    box.dataset.points = String(steps.length);
    box.dataset.job = String(job);
  }

  function take(news) {
    const other = news.job !== job || news.hue !== hue || steps.length < 3;
    steps = news.steps;
    loss = news.loss;
    job = news.job;
    hue = news.hue;
    box.className = `chart hue-${hue}`;
    say();
    if (!steps.length) return;
    if (other || !plot) draw();
    else plot.setData([steps, loss]);
  }

  box.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (event.target !== box) return;
    event.preventDefault(); // JSON, not HTML
    take(JSON.parse(event.detail.data));
  });
  document.addEventListener("headway:theme", () => { if (plot && steps.length) draw(); });
  new ResizeObserver(() => { if (plot && box.clientWidth) plot.setSize(size()); }).observe(box);

  take(JSON.parse(document.getElementById("chart-data").textContent));
})();
