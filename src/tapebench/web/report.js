// The page of a report: tables sort, rules and episodes can be looked at one by one.

const report = JSON.parse(document.getElementById("data").textContent);

// Tables

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => {
      const cell = row.cells[place];
      return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
    };
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1; // what is missing comes last
      const sign = down ? -1 : 1;
      return typeof x === "number" ? sign * (x - y) : -sign * x.localeCompare(y, "en", { numeric: true });
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
  }));
}

// Rules

const percent = (share) => `${(100 * share).toFixed(0)}%`;

function decode(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// The flips of one stored episode, or null if nothing is stored.
function storedActions(contest, who, row, tape) {
  const text = contest.episodes[who];
  if (!text) return null;
  contest.decoded ??= Object.create(null);  // any name, even `constructor`
  const bytes = (contest.decoded[who] ??= decode(text));
  const from = (row * contest.tapes.length + tape) * contest.horizon;
  const cells = [...bytes.subarray(from, from + contest.horizon)];
  const end = cells.indexOf(255);
  return end < 0 ? cells : cells.slice(0, end);
}

// How the flips of a stored episode compare with the best ones of a player that is not told the
// rule, by step; null where that is not computed. Three numbers a step, see `report/moves.py`.
function storedVerdicts(contest, who, row, tape) {
  if (!Object.hasOwn(contest.judged, who)) return null;
  contest.unpacked ??= Object.create(null);
  const parts = (contest.unpacked[who] ??= new DataView(decode(contest.judged[who]).buffer));
  const from = (row * contest.tapes.length + tape) * contest.horizon;
  return Array.from({ length: contest.horizon }, (_, step) => {
    const [best, value, lost] = [0, 2, 4].map((place) => parts.getUint16(6 * (from + step) + place, true));
    return {
      cells: Array.from({ length: contest.length }, (_, cell) => cell).filter((cell) => (best >> cell) & 1),
      value: value / 1e4, lost: (lost & 0x7fff) / 1e4, ignored: lost >> 15 === 1,
    };
  });
}

// A shortest way by the search of this page, or null where it cannot be found here.
function searchedActions(contest, rule, start) {
  const goal = parseTape(contest.goal), cells = [];
  for (let tape = start; wrongCells(tape, goal);) {
    const best = bestMoves(tape, rule, goal, contest.horizon - cells.length, contest.world);
    if (!best) return null;
    cells.push(best.cells[0]);
    tape = evolve(flip(tape, best.cells[0]), rule, contest.world);
  }
  return cells;
}

function bars(entries) {
  return element("table", { class: "bars" }, element("tbody", {}, ...entries.map(({ name, value, mark, text }) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {},
      element("span", { class: "bar", style: `--share:${value}` },
        mark === undefined || mark === null ? null : element("i", { style: `--share:${mark}` }))),
    element("td", {}, text)))));
}

function histogram(contest, entry) {
  const solved = contest.goal && solve(entry.rule, parseTape(contest.goal), contest.horizon, contest.world);
  let counts = entry.counts, what = `all 2^${contest.length} tapes`;
  if (solved) {
    counts = [];
    solved.forEach((steps) => { if (steps !== NO_WAY) counts[steps] = (counts[steps] || 0) + 1; });
  }
  if (!counts) {
    counts = [];
    entry.steps.forEach((steps) => { if (steps >= 0) counts[steps] = (counts[steps] || 0) + 1; });
    what = "the exam's tapes";
  }
  const filled = Array.from(counts, (count) => count || 0);
  if (!filled.length) return element("p", { class: "note" }, "No tape can reach the goal in time.");
  const top = Math.max(...filled), total = filled.reduce((a, b) => a + b, 0);
  return element("figure", { class: "histogram" },
    element("div", { class: "columns", role: "img", "aria-label": `optimal steps from 0 to ${filled.length - 1}` },
      ...filled.map((count, steps) => element("span", {
        style: `--share:${count / top}`, title: `${steps} steps: ${percent(count / total)}`,
      }, element("small", {}, String(steps))))),
    element("figcaption", { class: "note" }, `Optimal steps of ${what} that can reach the goal.`));
}

function explore(box, contest) {
  const names = contest.scores.map((score) => score.name);
  const shades = (how, row) => {
    const entry = contest.rules[row];
    if (how === "ceiling") return entry.ceiling ?? 0;
    return contest.scores[names.indexOf(how)].success[row];
  };
  const grid = element("div", {
    class: contest.world.family === "elementary" ? "rules" : "rules long", role: "group", "aria-label": "rules",
  });
  const buttons = contest.rules.map((entry, row) => element("button", {
    type: "button", class: `${entry.type} ${entry.side}`, tabindex: row ? -1 : 0, "data-rule": entry.rule,
    onclick: () => open(row),
  }, entry.label));
  grid.append(...buttons);
  grid.addEventListener("keydown", (event) => {
    const here = buttons.indexOf(document.activeElement);
    const wide = Math.max(1, buttons.filter((other) => other.offsetTop === buttons[0].offsetTop).length);
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[event.key];
    if (!move || here < 0 || !buttons[here + move]) return;
    event.preventDefault();
    focusOn(buttons, here + move);
  });
  const colour = choice("Shade by success of", [...names.map((name) => [name, name]), ["ceiling", "exact ceiling"]],
    (how) => paint(how));
  const detail = element("div", { class: "detail", "aria-live": "polite" });
  function paint(how) {
    buttons.forEach((button, row) => {
      const share = shades(how, row), entry = contest.rules[row];
      button.style.setProperty("--share", share);
      const side = entry.side === "ood" ? "held out" : "seen";
      button.setAttribute("aria-label", `rule ${entry.label}, ${entry.type}, ${side}, ${how} ${share.toFixed(2)}`);
    });
  }
  function open(row) {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === row)));
    focusOn(buttons, row);
    detail.replaceChildren(...ruleDetail(contest, row));
    redrawAll();
    return detail.querySelector(".choices") ?? detail;
  }
  box.append(colour.box, element("p", { class: "note" },
    "Darker is more. A thick border marks rules held out from training. Click a rule, or move with the arrow keys."),
  grid, detail);
  if (names.length) paint(names[0]);
  contest.open = open;
}

function ruleDetail(contest, row) {
  const entry = contest.rules[row];
  const side = entry.side === "ood" ? "held out" : "seen in training";
  const { entries, pattern } = FAMILIES[contest.world.family];
  const patterns = Array.from({ length: entries }, (_, at) => entries - 1 - at).map((code) =>
    element("span", {}, `${pattern(code)}→${(entry.rule >>> code) & 1}`));
  const start = contest.tapes.length ? parseTape(contest.tapes[0])
    : Array.from({ length: contest.length }, (_, i) => Number(i === contest.length >> 1));
  const rows = [start];
  while (rows.length <= contest.horizon) rows.push(evolve(rows.at(-1), entry.rule, contest.world));
  const alone = element("canvas", { role: "img", "aria-label": `rule ${entry.label} left alone` });
  setTimeout(() => drawSpacetime(alone, rows, [], rows.length, -1, contest.world.shape));
  const ceiling = entry.ceiling === null ? "not known" : entry.ceiling.toFixed(3);
  const kin = entry.wolfram === undefined ? "" : `; Wolfram class ${entry.wolfram}; mirror image ${entry.mirror}, ` +
    `complement ${entry.complement}`;
  const parts = [
    element("h4", {}, `Rule ${entry.label}`),
    element("p", {}, `${entry.type}, ${side}${kin}. Exact ceiling: ${ceiling}.`),
    element("p", { class: "patterns" }, ...patterns),
    element("div", { class: "sides" },
      element("div", {}, element("h5", {}, "Left alone"), alone),
      element("div", {}, element("h5", {}, "Success here"), bars(contest.scores.map((score) => ({
        name: score.name, value: score.success[row], mark: entry.ceiling, text: score.success[row].toFixed(3),
      }))), element("h5", {}, "How many steps it takes"), histogram(contest, entry))),
  ];
  return [...parts, ...episodes(contest, row)];
}

function episodes(contest, row) {
  if (!contest.tapes.length) return [];
  const entry = contest.rules[row], goal = parseTape(contest.goal);
  const shortest = "a shortest way", known = Object.keys(contest.episodes).filter((name) => name !== shortest);
  if (contest.length <= SOLVED_LENGTH || Object.hasOwn(contest.episodes, shortest)) known.push(shortest);
  if (!known.length) return [element("p", { class: "note" }, "There are no stored episodes to watch.")];
  const player = makePlayer();
  const note = element("p", { class: "note" });
  const who = choice("Episode of", known.map((name) => [name, name]), () => load());
  const tape = choice("from start tape", contest.tapes.map((_, i) => [String(i), String(i + 1)]), () => load());
  if (known.includes(contest.watched)) who.select.value = contest.watched;
  function load() {
    contest.watched = who.select.value;  // the next rule shows the same player
    const number = Number(tape.select.value), start = parseTape(contest.tapes[number]);
    const actions = storedActions(contest, who.select.value, row, number)
      ?? searchedActions(contest, entry.rule, start) ?? [];
    const fewest = entry.steps[number];
    note.textContent = fewest >= 0 ? `From this tape ${fewest} ${fewest === 1 ? "step is" : "steps are"} enough.`
      : fewest === -1 ? "From this tape there is no way to the goal in time."
        : "How many steps this tape needs is not known.";
    player.load({
      world: contest.world, rule: entry.rule, goal, horizon: contest.horizon, start, actions, fewest,
      way: storedActions(contest, shortest, row, number),
      verdicts: storedVerdicts(contest, who.select.value, row, number),
      unjudged: contest.not_judged || "not among the stored episodes",
    });
  }
  setTimeout(load);
  return [element("h5", {}, "Episodes"), element("div", { class: "choices" }, who.box, tape.box), note, player.box];
}

for (const box of document.querySelectorAll(".explorer")) {
  const contest = report.contests.find((one) => one.slug === box.dataset.contest);
  if (contest) explore(box, contest);
}

// Leaderboards: the name of a row leads to its episodes.

for (const board of document.querySelectorAll(".board")) {
  const contest = report.contests.find((one) => one.slug === board.dataset.contest);
  for (const head of board.querySelectorAll("tbody tr:not(.ceiling) th")) {
    const name = head.textContent;
    if (!contest || !Object.hasOwn(contest.episodes, name)) continue;
    head.replaceChildren(element("a", {
      href: `#watch-${contest.slug}`, title: `watch episodes of ${name}`,
      onclick: (event) => {
        event.preventDefault();
        contest.watched = name;
        contest.open(Number(board.dataset.first)).scrollIntoView();
      },
    }, name));
  }
}
