// What all time charts share: elements, numbers, clocks, the table of a chart, widths of axes.
"use strict";
window.headwayCharts = (() => {
  const MOST_ROWS = 120; // of a table; with more points, each row has the values of several

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

  // Returns the indices of values between gaps, of which no line is drawn; null if there are none.
  function lone(values) {
    const found = [...values.keys()].filter((i) => values[i] != null && values[i - 1] == null && values[i + 1] == null);
    return found.length ? found : null;
  }

  // Returns a table of aligned columns, the latest row first. `columns`: [heading, values, text of a value]. With more than MOST_ROWS
  // points, a row has the lowest and the highest value of several.
  function table(caption, columns) {
    const box = make("div", "table-wrap fig__table"), made = make("table", "table num");
    box.tabIndex = 0;
    const rows = columns[0][1].length, step = Math.max(1, Math.ceil(rows / MOST_ROWS)), body = make("tbody");
    made.append(make("caption", "sr", step > 1 ? `${caption}; each row has the lowest and highest of ${step} values` : caption));
    const head = made.createTHead().insertRow();
    columns.forEach(([heading], i) => {
      const cell = make("th", i ? "right" : "", heading);
      cell.scope = "col";
      head.append(cell);
    });
    made.append(body);
    for (let i = rows - 1; i >= 0; i -= step) {
      const from = Math.max(0, i - step + 1), groups = columns.map(([, values]) => values.slice(from, i + 1).filter((value) => value != null));
      if (groups.slice(1).every((group) => !group.length)) continue;
      const row = body.insertRow();
      columns.forEach(([, , text], column) => {
        const cell = make(column ? "td" : "th", column ? "right" : "cell-tight", column ? range(groups[column], text) : text(groups[0].at(-1)));
        if (!column) cell.scope = "row";
        row.append(cell);
      });
    }
    box.append(made);
    return box;
  }

  function range(values, text) {
    if (!values.length) return text(null);
    const low = text(Math.min(...values)), high = text(Math.max(...values));
    return low === high ? low : `${low} – ${high}`;
  }

  return { make, button, clock, axisWidth, table, lone };
})();
