// Lines of a log as a terminal shows them: colours of ANSI escape sequences become classes, and a line that was overwritten after
// a carriage return (progress bars) is shown as it is in the end. Text only, never HTML.
"use strict";
window.headwayLogLines = (() => {
  const ESCAPE = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
  const NOTE = "\u0001"; // begins a line that Headway says and the file does not contain

  const isNote = (raw) => raw.startsWith(NOTE);

  // Returns the part of the line that stays visible, with its escape sequences. Reads the line from its end, because a progress
  // bar makes lines of megabytes.
  function last(raw) {
    let to = raw.length, at = raw.lastIndexOf("\r");
    if (at < 0) return isNote(raw) ? raw.slice(1) : raw;
    while (at >= 0 && !raw.slice(at + 1, to).replace(ESCAPE, "").trim()) {
      to = at;
      at = at > 0 ? raw.lastIndexOf("\r", at - 1) : -1;
    }
    return raw.slice(at + 1, to);
  }

  const plain = (raw) => last(raw).replace(ESCAPE, "");

  // Applies the codes of one "select graphic rendition" sequence to the present style.
  function styled(style, codes) {
    const all = codes.split(";");
    let next = { ...style };
    for (let i = 0; i < all.length; i += 1) {
      const code = Number(all[i] || 0);
      if (code === 0) next = {};
      else if (code === 1) next.bold = true;
      else if (code === 2) next.dim = true;
      else if (code === 4) next.underlined = true;
      else if (code === 22) { next.bold = false; next.dim = false; }
      else if (code === 24) next.underlined = false;
      else if (code >= 30 && code <= 37) next.colour = code - 30;
      else if (code >= 90 && code <= 97) next.colour = code - 90;
      else if (code === 39) next.colour = undefined;
      else if (code === 38 || code === 48) {
        if (code === 38 && all[i + 1] === "5" && Number(all[i + 2]) < 16) next.colour = Number(all[i + 2]) % 8;
        i += all[i + 1] === "5" ? 2 : 4; // other colours of 256 or 16 million have no class
      }
    }
    return next;
  }

  function classes({ bold, dim, underlined, colour }) {
    return [bold && "log-b", dim && "log-d", underlined && "log-u", colour !== undefined && `log-c${colour}`].filter(Boolean).join(" ");
  }

  // Returns the nodes of a line.
  function nodes(raw) {
    const text = last(raw), made = [];
    let style = {}, from = 0;
    const add = (to) => {
      if (to === from) return;
      const piece = text.slice(from, to), name = classes(style);
      if (!name) { made.push(document.createTextNode(piece)); return; }
      const span = document.createElement("span");
      span.className = name;
      span.textContent = piece;
      made.push(span);
    };
    for (const found of text.matchAll(ESCAPE)) {
      add(found.index);
      from = found.index + found[0].length;
      if (found[2] === "m") style = styled(style, found[1]);
    }
    add(text.length);
    return made;
  }

  // What launchers put before the lines of a rank: "3: " or " 3: " (srun --label), "[rank3]: ", "[default3]:" (torchrun --tee). The
  // blank after "3:" is required: "14:59:58" is a time.
  const RANK = /^(?:\[(?:rank|default)(\d+)\]:? ?| *(\d+): )/;

  // Returns the rank that wrote a line, as text; "" if the line does not say.
  function rank(raw) {
    const found = RANK.exec(plain(raw));
    return found ? found[1] ?? found[2] : "";
  }

  // Returns the text by which a line repeats the one before it: also that of another rank.
  const sense = (raw) => (isNote(raw) ? "" : plain(raw).replace(RANK, "").trim());

  return { NOTE, isNote, plain, nodes, rank, sense };
})();
