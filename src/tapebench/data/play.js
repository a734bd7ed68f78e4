// The game: the server steps the tape, this page shows it.

{ // names like status and length belong to the window

const settings = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("game");

async function call(name, asked) {
  const answer = await fetch(`/api/${name}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked),
  });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error);
  return document;
}

const status = element("p", { class: "status", id: "status", role: "status" });
const result = element("div", { id: "result", "aria-live": "polite" });
const canvas = element("canvas", { role: "img", "aria-label": "the tapes so far, time runs down" });
const place = element("div");
const lengths = [8, 12, 16, 24, 32, settings.length].filter((n, i, all) => all.indexOf(n) === i && n <= settings.longest);
const length = choice("Cells", lengths.sort((a, b) => a - b).map((n) => [String(n), String(n)]), () => attempt(begin));
length.select.value = String(settings.length);
const rule = element("input", {
  type: "number", min: 0, max: 255, placeholder: "hidden", id: "rule", value: settings.rule ?? "",
  onchange: () => attempt(begin),
});
const button = (text, id, act) => element("button", { type: "button", id, onclick: () => attempt(act) }, text);
const helpButton = button("Best move (h)", "hint", help);
const nextButton = button("Next tape (n)", "next", next);
const compareButton = button("Compare", "compare", compare);
const saveButton = button("Save result", "save", save);
root.append(
  element("div", { class: "choices" }, element("label", { class: "choice" }, "Law ", rule), length.box),
  place, status,
  element("div", { class: "actions" }, helpButton, nextButton, compareButton, saveButton, button("New game", "new", begin)),
  result, canvas,
);

let game = null, strip = null, busy = false;

// One request at a time; what goes wrong is said where the player looks.
async function attempt(act) {
  if (busy) return;
  busy = true;
  try {
    await act();
  } catch (error) {
    status.textContent = error.message;
  } finally {
    busy = false;
  }
}

async function take(view) {
  result.replaceChildren();
  strip = makeStrip(view.tapes[0].length, (cell) => attempt(() => press(cell)));
  place.replaceChildren(strip.strip);
  show(view);
  focusOn(strip.parts, 0);
}

function show(view, best = null) {
  game = view;
  const rows = view.tapes.map(parseTape), cells = rows.at(-1), goal = cells.map(() => 0);
  const wrong = wrongCells(cells, goal), left = view.horizon - view.cells.length;
  strip.show(cells, goal, { best: best ? best.cell ?? -1 : -1 });
  const parts = [view.is_won ? `Solved in ${view.cells.length} ${view.cells.length === 1 ? "move" : "moves"}` : view.is_over ? "Out of moves" : `${left} moves left`,
    `distance ${(wrong / cells.length).toFixed(3)} (${wrong} of ${cells.length})`,
    `tape ${view.episode + 1}`, view.rule === null ? "law hidden" : `rule ${view.rule}`];
  if (best) {
    parts.push(best.cell === null
      ? (best.is_proved ? "there is no way to the goal in time" : "no way was found")
      : `${best.is_proved ? "best" : "found"}: cell ${best.cell}, the goal in ${best.steps}`);
  }
  status.textContent = parts.join(" · ");
  status.className = view.is_won ? "status won" : "status";
  helpButton.disabled = view.is_over;
  for (const one of [nextButton, compareButton, saveButton]) one.disabled = !view.is_over;
  drawSpacetime(canvas, rows, view.cells, view.horizon + 1, rows.length - 1);
}

async function begin() {
  const law = rule.value === "" ? null : Number(rule.value);
  await take(await call("new", { rule: law, length: Number(length.select.value) }));
}

async function press(cell) {
  if (!game.is_over) show(await call("flip", { game: game.game, cell }));
}

async function help() {
  if (!game.is_over) show(game, await call("hint", { game: game.game }));
}

async function next() {
  if (game.is_over) await take(await call("next", { game: game.game }));
}

async function compare() {
  status.textContent = "comparing …";
  const found = await call("compare", { game: game.game });
  show(game);
  const head = ["who", "goal", "moves", "distance"].map((name, place) =>
    element("th", { scope: "col", class: place ? null : "text" }, name));
  const rows = found.rows.map((row) => element("tr", {}, element("th", { scope: "row", class: "text" }, row.who),
    element("td", {}, row.success ? "reached" : "–"), element("td", {}, String(row.steps)),
    element("td", {}, row.distance.toFixed(3))));
  const possible = found.fewest !== null ? `${found.fewest} ${found.fewest === 1 ? "move is" : "moves are"} enough.`
    : found.is_impossible ? "No way exists in time." : "The fewest moves are not known.";
  result.replaceChildren(
    element("p", {}, `Rule ${found.rule}, ${found.type}, ${found.held_out ? "held out" : "a training rule"}. ${possible}`),
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
}

async function save() {
  const { saved } = await call("save", { game: game.game });
  result.replaceChildren(element("p", {}, `Saved: ${saved} (tape verify replays it)`));
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { h: help, n: next }[event.key];
  if (act) attempt(act);
});

attempt(begin);

}
