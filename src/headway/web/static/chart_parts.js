// What all time charts share: elements, numbers, clocks, the table of a chart, widths of axes.
"use strict";
window.headwayCharts = (() => {
  const MOST_ROWS = 120; // of a table; more points are thinned

  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text != null) element.textContent = text;
    return element;
  };
  const button = (name, text, pressed) => {
    const element = make("button", name, text);
    element.type = "button";
    if (pressed != null) element.setAttribute("aria-pressed", String(pressed));
    return element;
  };
  const pad = (n) => String(n).padStart(2, "0");
  const clock = (at, day) => {
    const d = new Date(at * 1000), time = `${pad(d.getHours())}:${pad(d.getMinutes())}`;
    return day ? `${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${time}` : `${time}:${pad(d.getSeconds())}`;
  };

  // Returns the width that the labels of a vertical axis need; for uPlot's `size`.
  function axisWidth(u, labels) {
    if (!labels) return 40;
    u.ctx.font = u.axes[1].font[0];
    const widest = Math.max(...labels.map((label) => u.ctx.measureText(label ?? "").width)) / devicePixelRatio;
    return Math.max(34, Math.ceil(widest) + 14);
  }

  // Returns a table of aligned columns, the latest row first. `columns`: [heading, values, text of a value].
  function table(caption, columns) {
    const box = make("div", "table-wrap fig__table"), made = make("table", "table num");
    box.tabIndex = 0;
    made.append(make("caption", "sr", caption));
    const head = made.createTHead().insertRow();
    columns.forEach(([heading], i) => {
      const cell = make("th", i ? "right" : "", heading);
      cell.scope = "col";
      head.append(cell);
    });
    const rows = columns[0][1].length, step = Math.max(1, Math.ceil(rows / MOST_ROWS)), body = made.createTBody();
    for (let i = rows - 1; i >= 0; i -= step) {
      if (columns.slice(1).every(([, values]) => values[i] == null)) continue;
      const row = body.insertRow();
      columns.forEach(([, values, text], column) => {
        const cell = make(column ? "td" : "th", column ? "right" : "cell-tight", text(values[i]));
        if (!column) cell.scope = "row";
        row.append(cell);
      });
    }
    box.append(made);
    return box;
  }

  return { make, button, clock, axisWidth, table };
})();
