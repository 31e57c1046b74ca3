// A heat map of a chart's lines: one row for each GPU, one column for each time; and the line that differs from all others.
"use strict";
window.headwayHeatMap = (() => {
  const FEWEST = 4, LEAST_SHARE = 0.1, DEVIATIONS = 5; // lines, share of the median, and typical deviations that make one line differ

  const median = (values) => {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };

  // Returns the line whose mean differs from those of all others by more than `least`, as {line, mean, others}; null if none does.
  function straggler(lines, least) {
    const means = lines.map((line) => {
      const known = line.values.filter((value) => value != null);
      return { line, mean: known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null };
    }).filter((one) => one.mean != null);
    if (means.length < FEWEST) return null;
    const others = median(means.map((one) => one.mean)), usual = median(means.map((one) => Math.abs(one.mean - others)));
    const far = means.filter((one) => Math.abs(one.mean - others) > Math.max(least, LEAST_SHARE * Math.abs(others), DEVIATIONS * usual));
    return far.length === 1 ? { ...far[0], others } : null;
  }

  // Draws the map into an element. `say(line, column)` gets the cell under the pointer, (null, null) outside.
  function draw(box, lines, [low, high], colours, say) {
    const canvas = document.createElement("canvas"), dot = devicePixelRatio, width = box.clientWidth || 300, height = box.clientHeight;
    const columns = lines[0].values.length, ctx = canvas.getContext("2d"), [r, g, b] = colours.lines[0].match(/[\d.]+/g);
    canvas.className = "heat";
    canvas.width = width * dot;
    canvas.height = height * dot;
    const row_px = canvas.height / lines.length, column_px = canvas.width / columns, gap = row_px > 5 * dot ? dot : 0;
    lines.forEach((line, row) => line.values.forEach((value, column) => {
      if (value == null) return;
      const share = high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 1;
      ctx.fillStyle = `rgba(${r}, ${g}, ${b}, ${(0.06 + 0.94 * share).toFixed(3)})`;
      ctx.fillRect(Math.floor(column * column_px), Math.floor(row * row_px), Math.ceil(column_px), Math.max(1, Math.ceil(row_px) - gap));
    }));
    canvas.addEventListener("pointermove", (event) => {
      const at = canvas.getBoundingClientRect(), within = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
      say(lines[within((event.clientY - at.top) / at.height, lines.length)], within((event.clientX - at.left) / at.width, columns));
    });
    canvas.addEventListener("pointerleave", () => say(null, null));
    box.replaceChildren(canvas);
  }

  return { straggler, draw };
})();
