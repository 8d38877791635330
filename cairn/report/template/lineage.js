// The lineage of a number: its graph, its keyboard, the details of artifacts and sources. Runs behind page.js.
// ---- lineage ---------------------------------------------------------------------------------------------------
const L = D.lineage, dialog = $("way");
const short = (hash) => (hash ? hash.slice(0, 10) : "no hash");
const wayOf = (place) => L.ways[D.numbers[place][WAY]];
const step = (artifact) => artifact.stage.split("@")[0];

function copyButton(text, what) {
  const button = make("button", { type: "button", class: "copy", "aria-label": `Copy ${what}` }, "copy");
  button.addEventListener("click", async () => {
    let done = false;
    try { await navigator.clipboard.writeText(text); done = true; } catch {
      // A page from disk may not have the clipboard's interface: select a field and let the browser copy.
      const field = make("textarea", { readonly: "" });
      field.value = text;
      dialog.append(field);
      field.select();
      done = document.execCommand("copy");
      field.remove();
      button.focus();
    }
    button.textContent = done ? "copied" : "select and copy";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  return button;
}

// The nodes behind some numbers: key → {title, hash, kind, artifact or source, below: keys of what it was made from}.
function nodesOf(numbers) {
  const nodes = new Map();
  function artifact(place) {
    const key = `a${place}`;
    if (nodes.has(key)) return key;
    const whole = L.artifacts[place], rests = used.get(place);
    const facts = rests ? { ...whole, inputs: whole.inputs.filter((input) => rests.has(input[0])) } : whole;
    const node = { key, title: step(facts), hash: facts.md5, kind: "artifact", facts, below: [] };
    nodes.set(key, node);
    const below = new Set(facts.inputs.flatMap((input) => input[2]));
    node.below = [...below].map(artifact);
    for (const source of facts.sources) {
      const name = `s${source}`, said = L.sources[source];
      const [algorithm] = Object.keys(said.checksums);
      nodes.set(name, { key: name, title: said.name, hash: algorithm ? said.checksums[algorithm] : null, kind: said.problem ? "source bad" : "source", facts: said, below: [] });
      node.below.push(name);
    }
    return key;
  }
  // Of its own artifact's inputs, a number rests on those of its way alone.
  const used = new Map();
  for (const place of numbers) {
    const way = wayOf(place);
    used.set(way.artifact, new Set([...(used.get(way.artifact) || []), ...way.inputs]));
  }
  const roots = [...used.keys()].map(artifact);
  const first = D.numbers[numbers[0]];
  const title = numbers.length > 1 ? `mean of ${numbers.length}` : first[TEXT];
  nodes.set("n", { key: "n", title, hash: null, kind: "number", facts: numbers, below: roots });
  return nodes;
}

// Layers by the longest way from the number; long edges pass through bends of their own, so that none hides a node.
function layout(nodes) {
  const depth = new Map();
  const visiting = (key, level) => {
    if ((depth.get(key) ?? -1) >= level) return;
    depth.set(key, level);
    for (const below of nodes.get(key).below) visiting(below, level + 1);
  };
  visiting("n", 0);
  const layers = [], edges = [];
  const put = (item, level) => { (layers[level] ||= []).push(item); return item; };
  const items = new Map();
  for (const [key, level] of [...depth].sort((a, b) => a[1] - b[1])) items.set(key, put({ key, level, width: 158, up: [], down: [] }, level));
  for (const [key] of depth) {
    for (const below of nodes.get(key).below) {
      const chain = [items.get(key)];
      for (let level = depth.get(key) + 1; level < depth.get(below); level += 1) chain.push(put({ bend: true, level, width: 14, up: [], down: [] }, level));
      chain.push(items.get(below));
      for (let place = 1; place < chain.length; place += 1) { chain[place - 1].down.push(chain[place]); chain[place].up.push(chain[place - 1]); }
      edges.push({ from: key, to: below, chain });
    }
  }
  const number = (layer) => layer.forEach((item, place) => { item.order = place; });
  layers.forEach(number);
  for (let sweep = 0; sweep < 8; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const middle = (item) => {
        const near = down ? item.up : item.down;
        return near.length ? near.reduce((sum, other) => sum + other.order / Math.max(layers[other.level].length - 1, 1), 0) / near.length : item.order / Math.max(layer.length - 1, 1);
      };
      const keyed = layer.map((item) => [middle(item), item]);
      keyed.sort((a, b) => a[0] - b[0] || a[1].order - b[1].order);
      layer.splice(0, layer.length, ...keyed.map((pair) => pair[1]));
      number(layer);
    }
  }
  const gap = 14, high = 42, between = 30;
  const widths = layers.map((layer) => layer.reduce((sum, item) => sum + item.width + gap, -gap));
  const width = Math.max(...widths) + 20;
  layers.forEach((layer, level) => {
    let x = (width - widths[level]) / 2;
    for (const item of layer) { item.x = x + item.width / 2; item.y = 8 + level * (high + between); x += item.width + gap; }
  });
  return { items, edges, layers, width, height: 16 + layers.length * (high + between) - between, high };
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

let current = null; // {nodes, drawn: key → element, edges, layers}
function drawGraph(nodes) {
  const { items, edges, layers, width, height, high } = layout(nodes);
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "What the number was made from, downwards to the sources. Arrow keys move." });
  const lines = edges.map((edge) => {
    const points = edge.chain.flatMap((item) => (item.bend ? [[item.x, item.y], [item.x, item.y + high]] : [[item.x, item === edge.chain[0] ? item.y + high : item.y]]));
    let d = `M${points[0]}`;
    for (let place = 1; place < points.length; place += 1) {
      const [x1, y1] = points[place - 1], [x2, y2] = points[place], half = (y1 + y2) / 2;
      d += `C${x1},${half} ${x2},${half} ${x2},${y2}`;
    }
    const line = svg("path", { d, class: "edge" });
    picture.append(line);
    return { ...edge, line };
  });
  const drawn = new Map();
  for (const [key, item] of items) {
    const node = nodes.get(key);
    const words = node.title.length > 21 ? `${node.title.slice(0, 20)}…` : node.title;
    const box = svg("g", { class: `node ${node.kind}`, tabindex: "0", role: "button", "aria-pressed": "false", "data-key": key, transform: `translate(${item.x - item.width / 2},${item.y})` });
    const said = { n: "the number" }[key] || `${node.kind.startsWith("source") ? "source" : "artifact"}, ${node.hash ? `hash ${short(node.hash)}` : "no hash"}`;
    box.setAttribute("aria-label", `${node.title}, ${said}`);
    box.append(svg("rect", { width: item.width, height: high, rx: 8 }), svg("text", { x: item.width / 2, y: 18, "text-anchor": "middle" }, words));
    box.append(svg("text", { x: item.width / 2, y: 33, "text-anchor": "middle", class: "h" }, key === "n" ? D.numbers[node.facts[0]][6] : short(node.hash)));
    box.addEventListener("click", () => select(key));
    box.addEventListener("keydown", (event) => move(event, key));
    picture.append(box);
    drawn.set(key, box);
  }
  $("graph").replaceChildren(picture);
  current = { nodes, drawn, lines, layers };
}

function move(event, key) {
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(key); return; }
  const way = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
  if (!way) return;
  event.preventDefault();
  const own = (layer) => (layer || []).filter((item) => !item.bend);
  const level = current.layers.findIndex((layer) => layer.some((item) => item.key === key));
  const here = current.layers[level].find((item) => item.key === key);
  let next = null;
  if (way[1]) next = own(current.layers[level])[own(current.layers[level]).indexOf(here) + way[1]];
  else next = own(current.layers[level + way[0]]).sort((a, b) => Math.abs(a.x - here.x) - Math.abs(b.x - here.x))[0];
  if (next) current.drawn.get(next.key).focus();
}

function select(key) {
  for (const [other, box] of current.drawn) box.setAttribute("aria-pressed", String(other === key));
  for (const edge of current.lines) {
    const on = edge.from === key || edge.to === key;
    edge.line.classList.toggle("on", on);
  }
  const node = current.nodes.get(key);
  const show = node.kind === "number" ? numberDetail : node.kind === "artifact" ? artifactDetail : sourceDetail;
  $("detail").replaceChildren(...show(node.facts));
  $("detail").scrollTop = 0;
}

const go = (key, text) => make("button", { type: "button", class: "go", on: () => { select(key); current.drawn.get(key).focus(); } }, text);
const bytes = (size) => (size === null || size === undefined ? "" : size < 1e3 ? `${size} bytes` : size < 1e6 ? `${(size / 1e3).toFixed(1)} kB` : size < 1e9 ? `${(size / 1e6).toFixed(1)} MB` : `${(size / 1e9).toFixed(2)} GB`);
const hashLine = (label, hash) => make("p", {}, `${label} `, hash ? make("span", { class: "hash" }, hash) : "none recorded", hash ? copyButton(hash, label) : null);

function facts(record) {
  const rows = Object.entries(record).map(([key, value]) => make("tr", {}, make("th", { scope: "row" }, key), make("td", {}, typeof value === "object" ? JSON.stringify(value) : String(value))));
  return make("table", {}, make("tbody", {}, ...rows));
}

function numberDetail(numbers) {
  const parts = [];
  for (const place of numbers) {
    const row = D.numbers[place];
    const command = `cairn trace ${nameOf(row)}`;
    const names = Object.fromEntries(FIELDS.map((field, at) => [field, row[at]]).filter((pair) => pair[1] !== "-"));
    const unit = row[UNIT] === "fraction" ? "" : ` (${row[UNIT]})`;
    parts.push(make("h3", {}, `${row[TEXT]}${unit}`), facts({
      ...names,
      "exact value": row[VALUE],
      ...(row[LOW] === null ? {} : { "95% interval over queries": `${row[LOW]} to ${row[HIGH]}` }),
      queries: row[QUERIES],
      "gallery, images": row[GALLERY],
      "read from": row[ARTIFACT],
    }), hashLine("md5 of that artifact", row[MD5]), make("p", {}, make("code", {}, command), copyButton(command, "the command")));
  }
  const notes = [...new Set(numbers.flatMap((place) => wayOf(place).notes))];
  if (notes.length) parts.push(make("h4", {}, "Notes on its way"), make("ul", { class: "lines" }, ...notes.map((note) => make("li", {}, ...coded(note)))));
  return parts;
}

function artifactDetail(artifact) {
  const many = artifact.files === null ? "" : `, ${artifact.files.toLocaleString("en")} files`;
  const parts = [make("h3", {}, step(artifact)), make("p", {}, make("code", {}, artifact.path), copyButton(artifact.path, "the path")),
    hashLine("md5", artifact.md5), make("p", { class: "small" }, `${bytes(artifact.size)}${many}; made by `, make("code", {}, artifact.command))];
  if (artifact.notes.length) parts.push(make("ul", { class: "lines" }, ...artifact.notes.map((note) => make("li", {}, ...coded(note)))));
  if (artifact.inputs.length) {
    parts.push(make("h4", {}, "Made from"), make("ul", { class: "lines" }, ...artifact.inputs.map(([path, md5, from]) => make("li", {},
      from.length === 1 ? go(`a${from[0]}`, path) : path, make("br"), make("span", { class: "hash small" }, md5 || "no hash"), md5 ? copyButton(md5, `the hash of ${path}`) : null))));
  }
  if (artifact.sources.length) parts.push(make("h4", {}, "Sources"), make("ul", { class: "lines" }, ...artifact.sources.map((place) => make("li", {}, go(`s${place}`, L.sources[place].name)))));
  for (const place of artifact.code) {
    const code = L.code[place];
    if (Object.keys(code.parameters).length) parts.push(make("h4", {}, "Parameters"), facts(code.parameters));
    parts.push(make("h4", {}, "Code"), hashLine("digest", code.digest));
    if (!code.current) parts.push(make("p", { class: "warn" }, "The code has changed since: the modules are those of now."));
    const files = [...code.modules, ...code.data].map((file) => L.files[file]);
    const list = make("ul", { class: "lines" });
    const more = make("details", {}, make("summary", {}, `${code.modules.length} modules${code.data.length ? `, ${code.data.length} data files` : ""}`), list);
    more.addEventListener("toggle", () => {
      if (!list.firstChild) list.append(...files.map(([path, sha]) => make("li", {}, path, make("br"), make("span", { class: "hash small" }, sha), copyButton(sha, `the SHA-256 of ${path}`))));
    });
    parts.push(more);
    const packages = Object.entries(code.packages);
    if (packages.length) parts.push(make("h4", {}, "Packages"), make("p", { class: "small" }, packages.map((pair) => pair.join(" ")).join(", ")));
  }
  return parts;
}

function sourceDetail(source) {
  const link = /^https?:\/\//.test(source.location);
  const parts = [make("h3", {}, source.name), make("p", {}, link ? make("a", { href: source.location, rel: "noopener noreferrer", target: "_blank" }, source.location) : make("code", {}, source.location), copyButton(source.location, "the location"))];
  if (source.problem) parts.push(make("p", { class: "warn" }, `Not pinned: ${source.problem}`));
  for (const [algorithm, hash] of Object.entries(source.checksums)) parts.push(hashLine(algorithm, hash));
  const said = { licence: source.licence || "not stated", retrieved: source.retrieved, size: bytes(source.size), files: source.files, "recorded in": source.recorded_in, synthetic: source.synthetic ? "yes, drawn by code" : "", note: source.note };
  parts.push(facts(Object.fromEntries(Object.entries(said).filter((pair) => pair[1]))));
  return parts;
}

function openWay(numbers) {
  const first = D.numbers[numbers[0]];
  $("way-kind").textContent = numbers.length > 1 ? `Lineage of the mean over ${numbers.length} seeds` : "Lineage of a number";
  $("way-title").textContent = numbers.length > 1 ? nameOf(first).replace(`/${first[3]}/`, "/*/") : nameOf(first);
  const mean = document.querySelector(`button.n[data-n="${numbers}"]`);
  const value = numbers.length === 1 ? first[TEXT] : mean ? mean.textContent : "";
  const range = numbers.length === 1 && first[RANGE] ? ` 95% interval ${first[RANGE]}` : "";
  $("way-head").replaceChildren(make("p", {}, make("span", { class: "value" }, value), range, numbers.length > 1 ? null : copyButton(nameOf(first), "the number's name")));
  document.querySelector(".panes").hidden = false;
  if (!dialog.open) dialog.showModal();
  drawGraph(nodesOf(numbers));
  select("n");
}

function openPublished(button) {
  const row = button.closest("tr"), table = row.closest("[data-board]");
  $("way-kind").textContent = "A published number";
  $("way-title").textContent = row.querySelector(".sys").textContent;
  $("way-head").replaceChildren(make("p", {}, make("span", { class: "value" }, button.dataset.value), ` ${table.dataset.board}, ${button.dataset.slice}`),
    make("p", {}, `As printed in ${row.dataset.note}`), make("p", { class: "small" }, "Taken from a paper: Cairn has no artifact behind it and cannot trace it."));
  document.querySelector(".panes").hidden = true;
  if (!dialog.open) dialog.showModal();
}

function address(text) { try { history.replaceState(null, "", text); } catch { /* a viewer without history */ } }
let opener = null;
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.n");
  if (!button) return;
  opener = button;
  if (button.dataset.n === undefined) { openPublished(button); return; }
  const numbers = button.dataset.n.split(",").map(Number);
  openWay(numbers);
  address(`#n=${numbers.map((place) => nameOf(D.numbers[place])).join(",")}`);
});
dialog.addEventListener("close", () => {
  if (location.hash.startsWith("#n=")) address(location.pathname + location.search);
  if (opener && opener.isConnected) opener.focus();
});
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
$("way-close").addEventListener("click", () => dialog.close());
function fromAddress() {
  if (!location.hash.startsWith("#n=")) return;
  const numbers = decodeURIComponent(location.hash.slice(3)).split(",").map((name) => places.get(name)).filter((place) => place !== undefined);
  if (numbers.length) openWay(numbers);
}
addEventListener("hashchange", fromAddress);
fromAddress();
