// The game. Tapes of the exam are stepped by the server, which keeps their rule; all others, and
// everything if there is no server, by the page itself.

{ // names like status and length belong to the window

const settings = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("game");

const token = new URLSearchParams(location.search).get("token");

const local = makeLocalGames(settings);

async function serverCall(name, asked) {
  const answer = await fetch(`/api/${name}`, {
    method: "POST", body: JSON.stringify(asked),
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
  }).catch(() => { throw new Error("There is no answer: is tape play still running?"); });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error);
  return document;
}

const status = element("p", { class: "status", id: "status", role: "status" });
const result = element("div", { id: "result", "aria-live": "polite" });
const canvas = element("canvas", { role: "img", "aria-label": "the tapes so far" });
const place = element("div");
const lengths = [8, 12, 16, 24, 32, settings.length].filter((n, i, all) => all.indexOf(n) === i && n <= settings.longest);
const KINDS = {
  exam: "the exam's tapes", free: "a ring", day: "the rule of the day", life: "a board of life",
};
const kinds = settings.is_static ? ["day", "free", "life"] : ["exam", "day", "life"];
const kind = choice("Play", kinds.map((name) => [name, KINDS[name]]), () => attempt(begin));
// A game is asked for where it is played, whatever has been chosen since.
const isLocal = ({ game: name }) => (name ? name.startsWith("here") : kind.select.value !== "exam");
const call = (name, asked) => (isLocal(asked) ? local : serverCall)(name, asked);
const length = choice("Cells", lengths.sort((a, b) => a - b).map((n) => [String(n), String(n)]), () => attempt(begin));
length.select.value = String(settings.length);
const rule = element("input", {
  type: "number", min: 0, max: 255, placeholder: "hidden", id: "rule", value: settings.rule ?? "",
  onchange: () => attempt(begin),
});
const ruleBox = element("label", { class: "choice" }, "Rule ", rule);
const notebook = makeNotebook((number) => attempt(() => nameRule(number)));
const thinking = element("span", { id: "thinking", role: "status" });
const button = (text, id, act) => element("button", { type: "button", id, onclick: () => attempt(act) }, text);
const helpButton = button("Best move (h)", "hint", help);
const nextButton = button("Next tape (n)", "next", next);
const compareButton = element("button", { type: "button", id: "compare", onclick: compare }, "Compare");
const saveButton = button("Save result", "save", save);
root.append(
  element("div", { class: "choices" }, kind.box, ruleBox, length.box),
  place, status,
  element("div", { class: "actions" }, helpButton, nextButton, compareButton, saveButton, button("New game", "new", begin), thinking),
  result, notebook.box, canvas,
);

let game = null, hinted = null, strip = null, comparing = null, waiting = 0, queue = Promise.resolve();

// What is asked for is done in its order, one request at a time: nothing that is clicked is lost.
function attempt(act) {
  queue = queue.then(() => guard(act));
}

// Says that it thinks if that can be noticed, and what goes wrong where the player looks.
async function guard(act, said = "thinking …") {
  waiting += 1;
  const timer = setTimeout(() => { thinking.textContent = said; }, 150);
  try {
    await act();
  } catch (error) {
    status.textContent = error.message;
  } finally {
    clearTimeout(timer);
    waiting -= 1;
    if (!waiting) thinking.textContent = "";
  }
}

// A move is for the tape that was on the screen, so cells rest while another tape is on its way.
async function take(name, asked) {
  strip?.parts.forEach((part) => { part.disabled = true; });
  let view = null;
  try {
    view = await call(name, asked);
  } finally {
    strip?.parts.forEach((part) => { part.disabled = false; });
  }
  if (view.world !== game?.world) comparing = null;
  result.replaceChildren();
  const shape = view.shape ?? [view.tapes[0].length];
  strip = makeStrip(view.tapes[0].length, (cell) => attempt(() => press(view.game, cell)), shape.at(-1));
  place.replaceChildren(strip.strip);
  show(view);
  focusOn(strip.parts, 0);
}

// What the player knows of the rule, as shown in the status.
function ruleStatus({ shown, rule, family }) {
  if (!shown.length) return "rule hidden";
  if (rule !== null) return `rule shown: ${family === "life" ? ruleLabel(family, rule) : rule}`;
  return `rule shown by ${{ hint: "a best move", save: "the saved file" }[shown[0]]}`;
}

// The fewest moves from the start, as far as the player may know: nothing of a rule that is hidden.
function parOf(view) {
  if (view.par !== null || view.rule === null || view.tapes[0].length > SOLVED_LENGTH) return view.par;
  const way = findWay(view, parseTape(view.tapes[0]), view.rule, view.horizon);
  return way && way.length;
}

function show(given, best = null) {
  const view = { family: "elementary", shape: [given.tapes[0].length], par: null, is_of_day: false, ...given };
  if (game?.world !== view.world) notebook.begin(view);
  // An answer that was overtaken by a comparison does not hide the rule again.
  const isStale = game?.world === view.world && game.shown.length > view.shown.length;
  game = isStale ? { ...view, shown: game.shown, rule: game.rule } : view;
  hinted = best;
  const rows = view.tapes.map(parseTape), cells = rows.at(-1), goal = cells.map(() => 0);
  const wrong = wrongCells(cells, goal), left = view.horizon - view.cells.length;
  strip.show(cells, goal, { best: best ? best.cell ?? -1 : -1 });
  const parts = [view.is_won ? `Solved in ${view.cells.length} ${view.cells.length === 1 ? "move" : "moves"}` : view.is_over ? "Out of moves" : `${left} moves left`,
    `distance ${(wrong / cells.length).toFixed(3)} (${wrong} of ${cells.length})`,
    `tape ${view.episode + 1}`, ruleStatus(game)];
  const par = parOf(game);
  if (par !== null) parts.splice(1, 0, `par ${par}`);
  if (best) {
    parts.push(best.cell === null
      ? (best.is_proved ? "there is no way to the goal in time" : "no way was found")
      : `${best.is_proved ? "best" : "found"}: cell ${best.cell}, the goal in ${best.steps}`);
  }
  status.textContent = parts.join(" · ");
  status.className = view.is_won ? "status won" : "status";
  notebook.add(game);
  saveButton.hidden = isLocal(view);
  if (view.is_of_day && view.is_over && !result.hasChildNodes()) {
    result.replaceChildren(...shareLine(view, par));
  }
  helpButton.disabled = view.is_over;
  for (const one of [nextButton, saveButton]) one.disabled = !view.is_over;
  compareButton.disabled = !view.is_over || comparing === view.game;
  drawSpacetime(canvas, rows, view.cells, view.horizon + 1, rows.length - 1, view.shape);
}

// What became of the rule of the day, to be sent to others: it says nothing of the rule.
function shareLine(view, par) {
  const date = new Date(today() * DAY).toISOString().slice(0, 10);
  const made = view.is_won ? `${view.cells.length} moves, par ${par}` : `not solved, par ${par}`;
  const text = `TAPE ${date}: ${made}`;
  return [element("p", { class: "share" }, `${text} `, element("button", {
    type: "button", onclick: (event) => {
      navigator.clipboard?.writeText(text).then(() => { event.target.textContent = "Copied"; }, () => {});
    },
  }, "Copy"))];
}

async function begin() {
  const isOpen = ["exam", "free"].includes(kind.select.value);
  ruleBox.hidden = length.box.hidden = !isOpen;
  const number = rule.value === "" || !isOpen ? null : Number(rule.value);
  await take("new", { rule: number, length: Number(length.select.value), kind: kind.select.value });
}

async function press(name, cell) {
  if (name === game.game && !game.is_over) show(await call("flip", { game: name, cell }));
}

async function help() {
  if (game.is_over) return;
  const { view, ...best } = await call("hint", { game: game.game });
  show(view, best);
}

async function nameRule(number) {
  const { view, ...found } = await call("name", { game: game.game, rule: number });
  show(view, hinted);
  const { family } = game;
  result.replaceChildren(element("p", {}, found.is_right
    ? `Right: it is ${ruleLabel(family, found.rule)}.`
    : `It is ${ruleLabel(family, found.rule)}, not ${ruleLabel(family, number)}.`));
}

async function next() {
  if (game.is_over) await take("next", { game: game.game });
}

// Takes a while the first time, so it waits for nobody and nobody waits for it.
async function compare() {
  const asked = game;
  comparing = asked.game;
  compareButton.disabled = true;
  await guard(async () => {
    try {
      const { view, ...found } = await call("compare", { game: asked.game });
      if (game.world !== asked.world) return; // another rule is being played by now
      result.replaceChildren(...comparison(view, found));
      game = { ...game, shown: view.shown, rule: view.rule };
    } finally {
      if (comparing === asked.game) comparing = null;
      show(game, hinted);
    }
  }, "comparing …");
}

function comparison(view, found) {
  const head = ["who", "goal", "moves", "distance"].map((name, place) =>
    element("th", { scope: "col", class: place ? null : "text" }, name));
  const rows = found.rows.map((row) => element("tr", {}, element("th", { scope: "row", class: "text" }, row.who),
    element("td", {}, row.success ? "reached" : "–"), element("td", {}, String(row.steps)),
    element("td", {}, row.distance.toFixed(3))));
  const possible = found.fewest !== null ? `${found.fewest} ${found.fewest === 1 ? "move is" : "moves are"} enough.`
    : found.is_impossible ? "No way exists in time." : "The fewest moves are not known.";
  const about = found.type ? `, ${found.type}, ${found.held_out ? "held out" : "a training rule"}` : "";
  const name = ruleLabel(view.family ?? "elementary", found.rule);
  return [
    element("p", {}, `Tape ${view.episode + 1}: ${name}${about}. ${possible}`),
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)),
  ];
}

async function save() {
  const wasHidden = !game.shown.length;
  saveButton.disabled = true;
  const { view, saved } = await call("save", { game: game.game }).finally(() => show(game));
  show(view);
  result.replaceChildren(element("p", {}, `Saved: ${saved} (tape verify replays it). ${wasHidden
    ? "The file holds the rule, so it counts as shown on the tapes that follow." : ""}`));
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { h: help, n: next }[event.key];
  if (act) attempt(act);
});

attempt(begin);

}
