// Colours, sorting, filters, plots and pictures. Runs in one scope with lineage.js, which page.py puts behind it.
const D = JSON.parse(document.getElementById("data").textContent);
const FIELDS = ["benchmark", "system", "head", "seed", "stage", "slice", "metric"];
const [VALUE, UNIT, LOW, HIGH, QUERIES, GALLERY, ARTIFACT, MD5, TEXT, RANGE, WAY] = [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
const $ = (id) => document.getElementById(id);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const nameOf = (row) => row.slice(0, 7).join("/");
const places = new Map(D.numbers.map((row, place) => [nameOf(row), place]));

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Text with `code` in backticks, as nodes.
const coded = (text) => text.split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part));

function describe(row, text = row[TEXT]) {
  const said = row.slice(0, 7).filter((field) => field !== "-").join(", ");
  const range = row[RANGE] ? `, 95% interval ${row[RANGE].replace("–", " to ")}` : "";
  return `${text}: ${said}${range}; show where it comes from`;
}

// ---- colours ---------------------------------------------------------------------------------------------------
const themes = ["", "dark", "light"];
$("theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "") + 1) % themes.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  $("theme").setAttribute("aria-label", `Colours: ${next || "as the system"}`);
});

// ---- sorting ---------------------------------------------------------------------------------------------------
function direct(table, header) {
  const now = header.getAttribute("aria-sort");
  const column = [...header.parentNode.children].indexOf(header);
  const first = header.classList.contains("num") ? "descending" : "ascending";
  const way = now === "none" ? first : now === "ascending" ? "descending" : "ascending";
  for (const other of header.parentNode.children) other.setAttribute("aria-sort", other === header ? way : "none");
  return [column, way === "ascending" ? 1 : -1];
}

function compare(a, b, sign) {
  if (a === b) return 0;
  if (a === null) return 1; // what has no value stands last, whichever the way
  if (b === null) return -1;
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
}

for (const table of all("table.board")) {
  table.tHead.addEventListener("click", (event) => {
    const header = event.target.closest("th");
    if (!header) return;
    const [column, sign] = direct(table, header);
    const key = (row) => {
      const cell = row.children[column];
      if (column === 0) return row.dataset.text;
      return cell.dataset.s === undefined ? null : Number(cell.dataset.s);
    };
    const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
    rows.sort((a, b) => compare(a[0], b[0], sign));
    table.tBodies[0].append(...rows.map((pair) => pair[1]));
  });
}

// ---- the leaderboard's filters and metrics ---------------------------------------------------------------------
function filterBoards() {
  const words = $("f-text").value.toLowerCase().split(/\s+/).filter(Boolean);
  const stage = $("f-stage").value;
  let count = 0, total = 0;
  for (const row of all("table.board tbody tr")) {
    const { kind, first, text } = row.dataset;
    const keep = (kind !== "published" || $("f-published").checked) && (kind !== "seed" || $("f-seeds").checked)
      && (!stage || first === stage) && words.every((word) => text.includes(word));
    row.hidden = !keep;
    if (!row.closest("[data-board]").hidden) { total += 1; count += keep; }
  }
  $("f-count").textContent = `${count} of ${total} rows`;
}
$("board-tools").addEventListener("input", filterBoards);
$("board-tools").addEventListener("submit", (event) => event.preventDefault());
for (const button of all("[data-shows]")) {
  button.addEventListener("click", () => {
    for (const other of button.parentNode.children) {
      other.setAttribute("aria-pressed", String(other === button));
      $(other.dataset.shows).hidden = other !== button;
    }
    filterBoards();
  });
}
if (!document.querySelector("tr.published")) $("f-published").closest("label").hidden = true;
if (!document.querySelector("tr.seed")) $("f-seeds").closest("label").hidden = true;
filterBoards();

// ---- all numbers -----------------------------------------------------------------------------------------------
const COLUMNS = [
  ...FIELDS.map((title, field) => ({ title, key: (row) => row[field] })),
  { title: "value", key: (row) => row[VALUE], number: true },
  { title: "95%", key: (row) => (row[LOW] === null ? null : row[HIGH] - row[LOW]), number: true },
  { title: "queries", key: (row) => row[QUERIES], number: true },
  { title: "gallery", key: (row) => row[GALLERY], number: true },
].filter((column, place) => ![2, 3].includes(place) || D.numbers.some((row) => row[place] !== "-"));
let ordered = D.numbers.map((_, place) => place);
const texts = D.numbers.map((row) => nameOf(row).toLowerCase());

function fillAll() {
  const words = $("a-text").value.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = all("#all-tools select").map((box) => [FIELDS.indexOf(box.dataset.field), box.value]).filter((pair) => pair[1]);
  const kept = ordered.filter((place) => chosen.every(([field, value]) => D.numbers[place][field] === value)
    && words.every((word) => texts[place].includes(word)));
  const body = $("all-table").tBodies[0];
  const rows = kept.map((place) => {
    const row = D.numbers[place];
    return make("tr", {}, ...COLUMNS.map((column) => {
      const cell = document.createElement("td");
      if (column.number) cell.className = "num";
      if (column.title === "value") {
        const button = make("button", { type: "button", class: "n", "data-n": place, "aria-label": describe(row) }, row[TEXT]);
        cell.append(button);
      } else if (column.title === "95%") {
        cell.textContent = row[RANGE] || "–";
      } else {
        const value = column.key(row);
        cell.textContent = typeof value === "number" ? value.toLocaleString("en") : value;
      }
      return cell;
    }));
  });
  body.replaceChildren(...rows);
  $("a-count").textContent = `${kept.length.toLocaleString("en")} of ${D.numbers.length.toLocaleString("en")} numbers`;
}

function startAll() {
  const head = $("all-table").tHead.rows[0];
  if (head.children.length) return;
  for (const column of COLUMNS) {
    const sort = make("button", { type: "button", class: "sort" }, column.title);
    head.append(make("th", { scope: "col", class: column.number ? "num" : null, "aria-sort": "none" }, sort));
  }
  head.addEventListener("click", (event) => {
    const header = event.target.closest("th");
    if (!header) return;
    const [column, sign] = direct($("all-table"), header);
    const key = COLUMNS[column].key;
    ordered.sort((a, b) => compare(key(D.numbers[a]), key(D.numbers[b]), sign) || a - b);
    fillAll();
  });
  for (const box of all("#all-tools select")) {
    const field = FIELDS.indexOf(box.dataset.field);
    const values = [...new Set(D.numbers.map((row) => row[field]))].sort();
    box.append(...values.map((value) => make("option", { value }, value)));
  }
  fillAll();
}
$("all-tools").addEventListener("input", fillAll);
$("all-tools").addEventListener("submit", (event) => event.preventDefault());
$("all").addEventListener("toggle", () => $("all").open && startAll());
if ($("all").open) startAll();

// ---- plots and pictures ----------------------------------------------------------------------------------------
const OPTIONS = { actions: false, renderer: "svg", ast: true, tooltip: { theme: "custom" } };
const waiting = new Set(all("[data-plot]"));
async function draw(node) {
  if (!waiting.delete(node)) return;
  const plot = D.plots[node.dataset.plot];
  const rows = plot.rows.map((row) => Object.fromEntries(row.map((value, place) => [plot.fields[place], value])));
  // Vega gives what it draws into a role of its own; the outer element keeps the name that readers hear.
  const inside = node.appendChild(make("div"));
  await vegaEmbed(inside, { ...plot.spec, datasets: { rows } }, OPTIONS);
  node.dataset.drawn = "1";
}
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
}, { rootMargin: "400px" });
for (const node of waiting) near.observe(node);
// The others follow when the browser has nothing else to do, so that the page can be printed whole.
const idle = window.requestIdleCallback || ((work) => setTimeout(work, 200));
function drawRest() {
  const next = waiting.values().next().value;
  if (next) draw(next).then(() => idle(drawRest));
}
addEventListener("load", () => idle(drawRest));
addEventListener("beforeprint", () => { for (const node of [...waiting]) draw(node); });

for (const details of all("[data-table]")) {
  details.addEventListener("toggle", () => {
    const place = details.querySelector(".scroll");
    if (!details.open || place.firstChild) return;
    const plot = D.plots[details.dataset.table];
    const columns = plot.columns.map((title, at) => ({ title, at })).filter((column) => column.title !== null);
    const numeric = (at) => plot.rows.every((row) => row[at] === null || typeof row[at] === "number");
    for (const column of columns) column.class = numeric(column.at) ? "num" : null;
    const head = make("tr", {}, ...columns.map((column) => make("th", { scope: "col", class: column.class }, column.title)));
    const rows = plot.rows.map((row) => make("tr", {}, ...columns.map(({ at, class: kind }) => make("td", { class: kind },
      row[at] === null ? "–" : typeof row[at] === "number" ? row[at].toLocaleString("en", { maximumFractionDigits: 4 }) : row[at]))));
    place.append(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  });
}
for (const image of all("img[data-p]")) image.src = D.pictures[image.dataset.p];
for (const button of all("button.n[data-n]:not([data-chip])")) {
  const found = button.dataset.n.split(",").map(Number);
  if (!button.hasAttribute("aria-label")) {
    button.setAttribute("aria-label", found.length > 1 ? `${button.textContent}: mean of ${found.length} seeds; show where it comes from` : describe(D.numbers[found[0]]));
  }
}
for (const chip of all("[data-chip]")) chip.setAttribute("aria-label", describe(D.numbers[Number(chip.dataset.n)], chip.textContent));
