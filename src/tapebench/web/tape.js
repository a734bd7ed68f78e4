"use strict";
// The tape in a browser: its physics, exact answers for short tapes, and how it is drawn.
// Cells are arrays of 0 and 1, row by row; a rule is a number. A world is { family, shape }: laws and
// the sides of a ring or a torus.

const onRing = (radius) => ({
  entries: 2 ** (2 * radius + 1), radius,
  codes: (cells) => cells.map((_, i) => {
    let code = 0;
    for (let by = -radius; by <= radius; by++) code = 2 * code + cells.at((i + by) % cells.length);
    return code;
  }),
  pattern: (code) => code.toString(2).padStart(2 * radius + 1, "0"),
});

// Which entry of a rule's table each cell reads, as in `physics/families`.
const FAMILIES = {
  elementary: onRing(1),
  ring2: onRing(2),
  life: {
    entries: 18,
    codes: (cells, [height, width]) => cells.map((cell, i) => {
      const row = Math.floor(i / width), column = i % width;
      let ones = -cell;
      for (const down of [height - 1, height, height + 1]) {
        for (const right of [width - 1, width, width + 1]) {
          ones += cells[((row + down) % height) * width + ((column + right) % width)];
        }
      }
      return 2 * ones + cell;
    }),
    pattern: (code) => `${code & 1} with ${code >> 1}`,
  },
};

const RING = { family: "elementary" };
const evolve = (cells, rule, { family, shape } = RING) =>
  FAMILIES[family].codes(cells, shape).map((code) => (rule >>> code) & 1);
const flip = (cells, at) => cells.map((cell, i) => (i === at ? 1 - cell : cell));
const wrongCells = (cells, goal) => cells.filter((cell, i) => cell !== goal[i]).length;
const parseTape = (text) => [...text].map(Number);
const unpackTape = (tape, length) => Array.from({ length }, (_, cell) => (tape >>> cell) & 1);
const packTape = (cells) => cells.reduce((sum, cell, i) => sum + cell * 2 ** i, 0);

const SOLVED_LENGTH = 16; // longest tape that is searched here
const NO_WAY = 255;
const solutions = new Map();

// What each of the 2^length tapes becomes; on a ring all its cells at once.
function updateAll(rule, length, world) {
  const size = 2 ** length, mask = size - 1, image = new Uint32Array(size);
  const { entries, radius } = FAMILIES[world.family];
  if (!radius) return image.map((_, tape) => packTape(evolve(unpackTape(tape, length), rule, world)));
  for (let tape = 0; tape < size; tape++) {
    const around = []; // the cell to the right of each cell is the lowest bit of its pattern
    for (let by = radius; by >= -radius; by--) {
      const turn = (by + length) % length;
      around.push(((tape >> turn) | (tape << (length - turn))) & mask);
    }
    let next = 0;
    for (let pattern = 0; pattern < entries; pattern++) {
      if ((rule >>> pattern) & 1) next |= around.reduce((all, word, bit) => all & ((pattern >> bit) & 1 ? word : ~word), mask);
    }
    image[tape] = next;
  }
  return image;
}

// Fewest steps to the goal from each of the 2^length tapes, NO_WAY where there is none in time.
// Backwards from the goal: a tape is one step away if a flip of one cell updates into the last layer.
function solve(rule, goal, horizon, world = RING) {
  const length = goal.length, key = `${world.family},${world.shape},${rule},${horizon},${goal.join("")}`;
  if (length > SOLVED_LENGTH) return null;
  if (solutions.has(key)) return solutions.get(key);
  const size = 2 ** length, image = updateAll(rule, length, world);
  const steps = new Uint8Array(size).fill(NO_WAY);
  steps[packTape(goal)] = 0;
  for (let step = 1, grew = true; grew && step <= Math.min(horizon, NO_WAY - 1); step++) {
    grew = false;
    for (let flipped = 0; flipped < size; flipped++) {
      if (steps[image[flipped]] !== step - 1) continue;
      for (let cell = 0; cell < length; cell++) {
        const tape = flipped ^ (1 << cell);
        if (steps[tape] === NO_WAY) { steps[tape] = step; grew = true; }
      }
    }
  }
  solutions.set(key, steps);
  return steps;
}

// The cells on shortest ways and the steps those take; null where there is no way in time or it is
// not known.
function bestMoves(cells, rule, goal, left, world = RING) {
  const steps = solve(rule, goal, left, world);
  if (!steps || steps[packTape(cells)] === NO_WAY) return null;
  const options = cells.map((_, cell) => steps[packTape(evolve(flip(cells, cell), rule, world))]);
  const fewest = Math.min(...options);
  if (fewest === NO_WAY) return null;
  return { cells: options.flatMap((count, cell) => (count === fewest ? [cell] : [])), steps: fewest + 1 };
}

// Elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function choice(label, options, change) {
  const select = element("select", { onchange: () => change(select.value) },
    ...options.map(([value, text]) => element("option", { value }, text)));
  return { select, box: element("label", { class: "choice" }, `${label} `, select) };
}

// Drawing

const drawings = new Set();
const redrawAll = () => drawings.forEach((draw) => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

const WIDEST = 440; // of a drawing, in pixels

// Where the tapes of an episode stand, in cells: rings below each other, boards side by side with a
// cell between them, as many in a line as have room.
function arrange(shape, total) {
  if (shape.length === 1) {
    const scale = Math.max(2, Math.min(24, Math.floor(WIDEST / Math.max(shape[0], total))));
    return { scale, wide: shape[0], high: total, columns: shape[0], place: (t) => [0, t] };
  }
  const [height, width] = shape, scale = Math.max(4, Math.floor(WIDEST / (8 * (width + 1))));
  const inLine = Math.max(1, Math.min(total, Math.floor((WIDEST / scale + 1) / (width + 1))));
  return {
    scale, wide: inLine * (width + 1) - 1, high: Math.ceil(total / inLine) * (height + 1) - 1, columns: width,
    place: (t) => [(t % inLine) * (width + 1), Math.floor(t / inLine) * (height + 1)],
  };
}

// A space-time diagram: time runs down, that of a torus from board to board; `flips[t]` is marked in
// tape t; tape `at` has a frame.
function drawSpacetime(canvas, rows, flips, total, at = -1, shape = [rows[0].length]) {
  const draw = () => {
    if (!canvas.isConnected) { drawings.delete(draw); return; }
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const { scale, wide, high, columns, place } = arrange(shape, total);
    const lines = rows[0].length / columns, ratio = window.devicePixelRatio || 1;
    canvas.width = wide * scale * ratio;
    canvas.height = high * scale * ratio;
    canvas.style.width = `${wide * scale}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const corners = Array.from({ length: total }, (_, t) => place(t).map((cell) => cell * scale));
    pen.fillStyle = colour("card");
    corners.forEach(([left, top]) => pen.fillRect(left, top, columns * scale, lines * scale));
    rows.forEach((cells, t) => {
      const [left, top] = corners[t];
      const corner = (cell) => [left + (cell % columns) * scale, top + Math.floor(cell / columns) * scale];
      pen.fillStyle = colour("zero");
      pen.fillRect(left, top, columns * scale, lines * scale);
      pen.fillStyle = colour("one");
      cells.forEach((cell, i) => cell && pen.fillRect(...corner(i), scale, scale));
      if (shape.length > 1) {
        pen.strokeStyle = colour("dim");
        pen.strokeRect(left + 0.5, top + 0.5, columns * scale - 1, lines * scale - 1);
      }
      if (flips[t] !== undefined) {
        const inset = Math.max(1, scale / 4), [x, y] = corner(flips[t]);
        pen.fillStyle = colour("flip");
        pen.fillRect(x + inset, y + inset, scale - 2 * inset, scale - 2 * inset);
      }
    });
    if (at >= 0) {
      const [left, top] = corners[at];
      pen.strokeStyle = colour("flip");
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, top + 0.5, columns * scale - 2, lines * scale - 1);
    }
  };
  drawings.forEach((other) => other.canvas === canvas && drawings.delete(other));
  draw.canvas = canvas;
  drawings.add(draw);
  draw();
}

// The cells of one tape in a grid, of so many columns. `press` makes them buttons: click, Enter or
// space; arrows move.
function makeStrip(length, press = null, columns = length) {
  const kind = columns < length ? "strip board" : "strip";
  const strip = element("div", { class: kind, role: press ? "group" : "img", style: `--cells:${columns}` });
  const parts = [];
  for (let cell = 0; cell < length; cell++) {
    const part = press
      ? element("button", { type: "button", tabindex: cell ? -1 : 0, onclick: () => press(cell) })
      : element("span");
    parts.push(part);
    strip.append(part);
  }
  if (press) {
    strip.addEventListener("keydown", (event) => {
      const down = columns < length ? columns : 0;
      const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -down, ArrowDown: down }[event.key];
      const here = parts.indexOf(document.activeElement);
      if (!move || here < 0) return;
      event.preventDefault();
      focusOn(parts, (here + move + length) % length);
    });
  }
  return {
    strip, parts,
    show(cells, goal, { flipped = -1, best = -1, known = [], unknown = [] } = {}) {
      const ones = cells.filter(Boolean).length;
      strip.setAttribute("aria-label", `tape of ${length} cells, ${ones} ones`);
      parts.forEach((part, i) => {
        part.className = ["one", "wrong", "flipped", "best", "known", "unknown"].filter((_, k) =>
          [cells[i] === 1, cells[i] !== goal[i], i === flipped, i === best, known.includes(i),
            unknown.includes(i)][k]).join(" ");
        if (press) {
          part.setAttribute("aria-label", `cell ${i}: ${cells[i]}${i === best ? ", best move" : ""}`);
        }
      });
    },
  };
}

function focusOn(parts, at) {
  parts.forEach((part, i) => { part.tabIndex = i === at ? 0 : -1; });
  parts[at].focus();
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// `cells 2, 3 and 5`; all of them in short, which says as much.
function listCells(cells, length) {
  if (cells.length === length) return "any cell";
  if (cells.length === 1) return `cell ${cells[0]}`;
  return `cells ${cells.slice(0, -1).join(", ")} and ${cells.at(-1)}`;
}

// What is best with the rule known, as { cells, text }: by the search of this page, or while the
// episode is on a proved shortest way, or what follows from there being none; else why it is not known.
function knownBest({ rule, goal, horizon, start, way, fewest, world }, cells, at) {
  const length = cells.length, none = { cells: [], text: "no way to the goal in time" };
  if (length <= SOLVED_LENGTH) {
    const best = bestMoves(cells, rule, goal, horizon - at, world);
    if (!best) return none;
    return { cells: best.cells, text: `${listCells(best.cells, length)}; the goal in ${plural(best.steps, "step")}` };
  }
  if (fewest === -1) return none;
  let tape = start;
  for (const [number, cell] of (way ?? []).entries()) {
    const left = way.length - number;
    if (tape.every((value, i) => value === cells[i]) && left <= horizon - at) {
      return { cells: [cell], text: `cell ${cell}, perhaps others too; the goal in ${plural(left, "step")}` };
    }
    tape = evolve(flip(tape, cell), rule, world);
  }
  return { cells: [], why: `more than ${SOLVED_LENGTH} cells, and this tape is on no stored way` };
}

// Plays an episode step by step. `load` takes { world, rule, goal, horizon, start, actions }, the stored
// shortest way and its steps { way, fewest }, and { verdicts, unjudged }: each move judged for a player
// that is not told the rule, or why there is no such judgement.
function makePlayer() {
  const status = element("p", { class: "status" });
  const row = (kind, label) => {
    const text = element("dd");
    return { text, parts: [element("dt", { class: kind }, label), text] };
  };
  const rowsOf = {
    known: row("known", "best if the rule is known"),
    unknown: row("unknown", "best if it is not"),
    regret: row("regret", "regret of the flip"),
  };
  const verdict = element("dl", { class: "verdict" }, ...Object.values(rowsOf).flatMap(({ parts }) => parts));
  const say = (name, text, why = "") => rowsOf[name].text.replaceChildren(
    ...(text ? [text] : [element("span", { title: why }, "–"), why ? element("small", {}, ` ${why}`) : ""]));
  const canvas = element("canvas", { role: "img", "aria-label": "space-time diagram of the episode" });
  const slider = element("input", {
    type: "range", min: 0, max: 0, value: 0, "aria-label": "step",
    oninput: () => show(Number(slider.value)),
  });
  const button = (label, name, go) =>
    element("button", { type: "button", "aria-label": name, title: name, onclick: go }, label);
  const playButton = button("play", "play or pause", () => toggle());
  const controls = element("div", { class: "controls" },
    button("|◀", "to the start", () => show(0)), button("◀", "one step back", () => show(at - 1)),
    playButton, button("▶", "one step on", () => show(at + 1)),
    button("▶|", "to the end", () => show(rows.length - 1)), slider);
  const place = element("div");
  const box = element("div", {
    class: "player", tabindex: 0, role: "group",
    "aria-label": "episode player: arrow keys step, space plays",
  }, place, controls, element("div", { "aria-live": "polite" }, status, verdict), canvas);
  let strip = null, episode = null, rows = [[0]], at = 0, timer = null;
  box.addEventListener("keydown", (event) => {
    if (event.target !== box) return;
    const act = {
      ArrowLeft: () => show(at - 1), ArrowRight: () => show(at + 1), Home: () => show(0),
      End: () => show(rows.length - 1), " ": toggle,
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  function toggle() {
    if (timer) { stop(); return; }
    if (at === rows.length - 1) show(0);
    timer = setInterval(() => (at < rows.length - 1 ? show(at + 1) : stop()), 350);
    playButton.textContent = "pause";
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    playButton.textContent = "play";
  }
  function load(given) {
    stop();
    episode = given;
    rows = [given.start];
    for (const cell of given.actions) rows.push(evolve(flip(rows.at(-1), cell), given.rule, given.world));
    strip = makeStrip(given.start.length, null, given.world.shape.at(-1));
    place.replaceChildren(strip.strip);
    slider.max = rows.length - 1;
    show(0);
  }
  function show(step) {
    at = Math.max(0, Math.min(rows.length - 1, step));
    slider.value = at;
    const { goal, horizon, actions, verdicts, unjudged } = episode, cells = rows[at], cell = actions[at];
    const wrong = wrongCells(cells, goal), isOpen = wrong > 0 && at < horizon;
    const best = isOpen ? knownBest(episode, cells, at) : { cells: [] };
    const judged = isOpen && cell !== undefined && verdicts ? verdicts[at] : null;
    const isHopeless = judged?.value === 0;
    strip.show(cells, goal, {
      flipped: cell ?? -1, known: best.cells, unknown: judged && !isHopeless ? judged.cells : [],
    });
    const parts = [`step ${at} of ${horizon}`, `distance ${(wrong / cells.length).toFixed(3)}`];
    if (!wrong) parts.push("goal reached");
    else if (cell === undefined) parts.push(at < horizon ? "no move is known" : "out of steps");
    else parts.push(`flips cell ${cell}`);
    status.textContent = parts.join(" · ");
    const unknown = isOpen ? (verdicts ? "no flip is stored" : unjudged) : "";
    say("known", best.text, best.why);
    if (isHopeless) say("unknown", "any cell; no rule that is still possible can be solved in time");
    else say("unknown", judged && `${listCells(judged.cells, cells.length)}; success ${judged.value.toFixed(3)} expected`, unknown);
    const kind = judged?.lost ? (judged.ignored ? ", evidence ignored" : ", control") : "";
    say("regret", judged && `${judged.lost.toFixed(3)}${kind}`, unknown);
    drawSpacetime(canvas, rows.slice(0, at + 1), actions.slice(0, at + 1), horizon + 1, at, episode.world.shape);
  }
  return { box, load };
}
