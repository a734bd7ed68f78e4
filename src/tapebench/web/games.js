"use strict";
// Games that are played in the page itself, by the calls that the server answers, so that one page
// shows both. Nothing of them is saved.

// The entries of the table that one step has shown, as [code, what becomes of it].
function shownEntries({ family, shape }, before, cell, after) {
  return FAMILIES[family].codes(flip(before, cell), shape).map((code, i) => [code, after[i]]);
}

const step = (world, cells, cell, rule) => evolve(flip(cells, cell), rule, world);

// A shortest way to the zero tape of at most `most` steps, or null. Rings are solved backwards, boards
// tried out ever deeper, on numbers whose bits are cells.
function findWay({ family, shape }, cells, rule, most) {
  const goal = cells.map(() => 0);
  if (family === "elementary") {
    const way = [];
    for (let tape = cells; tape.some(Boolean);) {
      const best = bestMoves(tape, rule, goal, most - way.length);
      if (!best) return null;
      way.push(best.cells[0]);
      tape = step({ family, shape }, tape, best.cells[0], rule);
    }
    return way;
  }
  const around = neighbourMasks(shape), way = [];
  const search = (tape, left) => {
    if (tape === 0) return true;
    if (!left) return false;
    for (let cell = 0; cell < around.length; cell++) {
      way.push(cell);
      if (search(updateBoard(tape ^ (1 << cell), rule, around), left - 1)) return true;
      way.pop();
    }
    return false;
  };
  for (let depth = 0; depth <= most; depth++) if (search(packTape(cells), depth)) return way;
  return null;
}

function neighbourMasks([height, width]) {
  return Array.from({ length: height * width }, (_, cell) => {
    const row = Math.floor(cell / width), column = cell % width;
    let mask = 0;
    for (const down of [height - 1, height, height + 1]) {
      for (const right of [width - 1, width, width + 1]) {
        mask |= 1 << (((row + down) % height) * width + ((column + right) % width));
      }
    }
    return mask & ~(1 << cell);
  });
}

function updateBoard(tape, rule, around) {
  let next = 0;
  for (let cell = 0; cell < around.length; cell++) {
    const code = 2 * countOnes(tape & around[cell]) + ((tape >>> cell) & 1);
    next |= ((rule >>> code) & 1) << cell;
  }
  return next;
}

function countOnes(bits) {
  let pairs = bits - ((bits >>> 1) & 0x55555555);
  pairs = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333);
  return (((pairs + (pairs >>> 4)) & 0x0f0f0f0f) * 0x01010101) >>> 24;
}

// The rule and the tape of a day, the same for everybody: days are counted from 1970 on.
const DAY = 86400000;
const today = () => Math.floor((Date.now() - new Date().getTimezoneOffset() * 60000) / DAY);

function gameOfDay(day, { length, horizon, rules, tapes }) {
  const world = { family: "elementary", shape: [length] };
  for (let tried = 0; ; tried++) { // another tape, and after all of them another rule
    const rule = rules[(day * 37 + Math.floor(tried / tapes.length)) % rules.length];
    const start = parseTape(tapes[(day + tried) % tapes.length]);
    const way = findWay(world, start, rule, horizon);
    if (way && way.length > 1) return { ...world, rule, horizon, start, par: way.length };
  }
}

// The ways of showing a rule that tell its number.
const NAMING = ["chosen", "compare", "name"];

// Answers the calls of the page: settings has tapes by the number of cells, and the rules of worlds.
function makeLocalGames(settings) {
  const games = new Map();
  let worlds = 0;

  const view = (game) => ({
    game: game.name, world: game.world.name, family: game.world.family, shape: game.world.shape,
    tapes: game.tapes.map((cells) => cells.join("")), cells: game.cells, horizon: game.world.horizon,
    episode: game.episode, shown: game.world.shown, par: game.par,
    is_of_day: game.world.isOfDay && game.episode === 0,
    rule: game.world.shown.some((way) => NAMING.includes(way)) ? game.world.rule : null,
    is_won: !game.tapes.at(-1).some(Boolean),
    is_over: !game.tapes.at(-1).some(Boolean) || game.cells.length === game.world.horizon,
  });

  function add(world, episode, start) {
    const way = findWay(world, start, world.rule, world.horizon);
    const game = { name: `${world.name}-${episode}`, world, episode, tapes: [start], cells: [], par: way && way.length };
    games.set(game.name, game);
    return game;
  }

  // The tape number `episode` under this rule; one that needs a flip at least, and can be solved.
  function begin(world, episode) {
    const tapes = world.tapes.map(parseTape);
    return add(world, episode, tapes[(world.first + episode) % tapes.length]);
  }

  const pick = (list) => list[Math.floor(Math.random() * list.length)];
  const isFair = (game) => game.par !== null && game.par > 1;

  const calls = {
    new({ kind, rule, length }) {
      const name = `here${worlds += 1}`;
      if (kind === "day") {
        const { start, par, ...world } = gameOfDay(today(), settings.day);
        return view(add({ ...world, name, isOfDay: true, shown: [], first: 0, tapes: settings.day.tapes }, 0, start));
      }
      const place = kind === "life"
        ? { family: "life", shape: settings.life.shape, horizon: settings.life.horizon, tapes: settings.life.tapes }
        : { family: "elementary", shape: [length], horizon: length, tapes: settings.tapes[length] };
      for (;;) {
        const drawn = rule ?? (kind === "life" ? pick(settings.life.rules) : Math.floor(Math.random() * 256));
        const first = Math.floor(Math.random() * place.tapes.length);
        const game = begin({ ...place, name, isOfDay: false, rule: drawn, first, shown: rule === null ? [] : ["chosen"] }, 0);
        if (rule !== null || isFair(game)) return view(game);
      }
    },
    next({ game: name }) {
      const { world, episode } = games.get(name);
      return view(games.get(`${world.name}-${episode + 1}`) ?? begin(world, episode + 1));
    },
    flip({ game: name, cell }) {
      const game = games.get(name);
      game.tapes.push(step(game.world, game.tapes.at(-1), cell, game.world.rule));
      game.cells.push(cell);
      return view(game);
    },
    hint({ game: name }) {
      const game = games.get(name), { world } = game;
      const way = findWay(world, game.tapes.at(-1), world.rule, world.horizon - game.cells.length);
      if (!world.shown.includes("hint")) world.shown = [...world.shown, "hint"];
      return { cell: way ? way[0] : null, steps: way ? way.length : null, is_proved: true, view: view(game) };
    },
    compare({ game: name }) {
      const game = games.get(name), { world } = game;
      world.shown = [...world.shown, "compare"];
      const wrong = (cells) => cells.filter(Boolean).length / cells.length;
      const rows = [{ who: "you", success: !wrong(game.tapes.at(-1)), steps: game.cells.length, distance: wrong(game.tapes.at(-1)) }];
      if (game.par !== null) rows.push({ who: "a shortest way", success: true, steps: game.par, distance: 0 });
      return { rule: world.rule, fewest: game.par, is_impossible: game.par === null, rows, view: view(game) };
    },
    name({ game: name, rule }) {
      const game = games.get(name), { world } = game;
      world.shown = [...world.shown, "name"];
      return { rule: world.rule, is_right: rule === world.rule, view: view(game) };
    },
  };
  return async (name, asked) => calls[name](asked);
}

// How a rule is called.
function ruleLabel(family, rule) {
  if (family === "elementary") return `rule ${rule}`;
  const listed = (cell) => [0, 1, 2, 3, 4, 5, 6, 7, 8].filter((ones) => (rule >>> (2 * ones + cell)) & 1).join("");
  return `B${listed(0)}/S${listed(1)}`;
}

// The table of the rule as far as it has been seen. Entries that have not can be guessed by a click;
// `name` is called with the number once there is something in every entry.
function makeNotebook(name) {
  const box = element("section", { class: "notebook", "aria-label": "notebook" });
  let family = null, seen = new Map(), guessed = new Map(), isOpen = true;

  function picture(code) {
    if (family === "life") {
      const small = element("span", { class: code & 1 ? "cell one" : "cell" });
      return element("span", { class: "pattern" }, small, ` with ${code >> 1}`);
    }
    return element("span", { class: "pattern" }, ...[4, 2, 1].map((bit) =>
      element("span", { class: code & bit ? "cell one" : "cell" })));
  }

  const value = (code) => seen.get(code) ?? guessed.get(code);

  function guess(code) {
    const now = guessed.get(code);
    if (now === undefined) guessed.set(code, 1);
    else if (now === 1) guessed.set(code, 0);
    else guessed.delete(code);
    draw();
    box.querySelector(`[data-code="${code}"]`).focus();
  }

  function draw() {
    const { entries } = FAMILIES[family];
    const codes = Array.from({ length: entries }, (_, at) => entries - 1 - at);
    const cards = codes.map((code) => {
      const known = value(code), isSeen = seen.has(code);
      const text = { undefined: "?", 0: "0", 1: "1" }[known];
      return element("button", {
        type: "button", class: ["entry", isSeen ? "seen" : known === undefined ? "" : "guessed"].join(" "),
        "data-code": code, disabled: isSeen || !isOpen, onclick: () => guess(code),
        "aria-label": `entry ${code}: ${isSeen ? text : known === undefined ? "not seen" : `guessed ${text}`}`,
      }, picture(code), element("span", { class: known === 1 ? "outcome one" : "outcome" }, isSeen ? "" : text));
    });
    const isFull = codes.every((code) => value(code) !== undefined);
    const number = codes.reduce((sum, code) => sum + (value(code) ? 2 ** code : 0), 0);
    const button = element("button", { type: "button", id: "name", disabled: !isFull || !isOpen, onclick: () => name(number) },
      isFull ? `Name it: ${ruleLabel(family, number)}` : "Name the rule");
    box.replaceChildren(
      element("h2", {}, `Notebook: ${seen.size} of ${entries} entries seen`),
      element("div", { class: "entries" }, ...cards),
      element("div", { class: "actions" }, button),
    );
  }

  return {
    box,
    begin(view) { family = view.family; seen = new Map(); guessed = new Map(); },
    add(view) {
      const rows = view.tapes.map(parseTape);
      view.cells.forEach((cell, at) => shownEntries(view, rows[at], cell, rows[at + 1]).forEach(([code, bit]) => {
        seen.set(code, bit);
        guessed.delete(code);
      }));
      isOpen = view.rule === null;
      draw();
    },
  };
}
