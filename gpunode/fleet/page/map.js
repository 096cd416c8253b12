// The map: a row for hosts that are alike, a column for each component; and above it a square for each host.

const AT_ONCE = 150;
let current = null;

function strip(data) {
  const rows = new Map(data.rows.flatMap((row) => row.hosts.map((name) => [name, row])));
  const squares = data.order.map((name) => {
    const square = made("i", { class: rows.get(name).kind.colour, title: name });
    square.host = name;
    return square;
  });
  byId("strip").classList.add(squares.length > 300 ? "many" : squares.length > 60 ? "some" : "few");
  byId("strip").append(...squares);
  byId("strip").addEventListener("click", (event) => {
    if (event.target.host !== undefined) show(data, rows.get(event.target.host), null, event.target.host);
  });
  return squares;
}

function headRow(data) {
  const cells = data.columns.map((name) =>
    made("th", { scope: "col", class: "turned", title: name }, made("span", {}, name)));
  return made("tr", {}, made("th", { scope: "col", class: "hosts" }, "Hosts"), ...cells);
}

// What a screen reader says of a cell.
function spoken(row, name, kind) {
  if (kind === null) return `${name}: nothing is told`;
  const number = row.items.filter((item) => item.component === name).length;
  return `${name}: ${kind.name}${number ? `, ${counted(number, "difference")}` : ""}`;
}

const blank = document.createElement("td");

function bodyRow(data, row) {
  const names = made("span", { class: "names" }, row.label);
  const number = made("span", { class: "number" });
  const mark = made("span", { class: `cell ${row.kind.colour}`, "aria-hidden": "true" }, row.kind.mark);
  const kind = made("span", { class: "unseen" }, `, ${row.kind.name}`);
  const head = made("th", { scope: "row", class: "hosts" }, mark, names, kind, number);
  const element = made("tr", {}, head);
  row.cells.forEach((each, at) => {
    const cell = blank.cloneNode();
    cell.className = each !== null ? each.colour : row.kind.colour === "unreachable" ? "unknown" : "none";
    cell.textContent = each === null ? "" : each.mark;
    cell.setAttribute("aria-label", spoken(row, data.columns[at], each));
    element.append(cell);
  });
  element.row = row;
  Object.assign(row, { element, names, number });
  return element;
}

function drawMap(data) {
  const body = made("tbody");
  const table = made("table", {
    role: "grid", "aria-labelledby": "fleet-title", "aria-describedby": "keys",
    "aria-rowcount": String(data.rows.length + 1), "aria-colcount": String(data.columns.length + 1),
  }, made("thead", {}, headRow(data)), body);
  body.append(...data.rows.slice(0, AT_ONCE).map((row) => bodyRow(data, row)));
  byId("fleet").append(table);
  // The rest when the first ones are seen.
  let done = Math.min(AT_ONCE, data.rows.length);
  const more = () => {
    const next = data.rows.slice(done, done + AT_ONCE);
    done += next.length;
    body.append(...next.map((row) => bodyRow(data, row)));
    if (done < data.rows.length) setTimeout(more);
    else finished(data);
  };
  setTimeout(more);
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("th, td");
    if (cell) opened(data, cell, false);
  });
  table.addEventListener("keydown", (event) => moved(data, event));
  table.addEventListener("focusin", (event) => focused(event.target.closest("th, td")));
  focused(table.rows[1]?.cells[0] ?? table.rows[0].cells[0]);
  return table;
}

function focused(cell) {
  if (!cell || cell === current) return;
  current?.removeAttribute("tabindex");
  current = cell;
  cell.tabIndex = 0;
}

function opened(data, cell, byKey) {
  focused(cell);
  if (cell.closest("thead")) {
    const name = data.columns[cell.cellIndex - 1] ?? "";
    filters.component = filters.component === name ? "" : name;
    changedBy(data);
    return;
  }
  const { row } = cell.closest("tr");
  show(data, row, cell.cellIndex ? data.columns[cell.cellIndex - 1] : null, row.hosts[0]);
  if (byKey) byId("panel-title").focus();
}

function moved(data, event) {
  const cell = event.target.closest("th, td");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  const lines = [...cell.closest("table").rows].filter((line) => !line.hidden);
  const at = lines.indexOf(cell.closest("tr"));
  const across = [...cell.closest("tr").cells].filter((each) => !each.hidden);
  const [left, right] = [across[across.indexOf(cell) - 1], across[across.indexOf(cell) + 1]];
  const down = (by) => lines[Math.max(0, Math.min(lines.length - 1, at + by))]?.cells[cell.cellIndex];
  const next = {
    ArrowLeft: () => left, ArrowRight: () => right, ArrowUp: () => down(-1), ArrowDown: () => down(1),
    PageUp: () => down(-10), PageDown: () => down(10), Home: () => across[0], End: () => across[across.length - 1],
  }[event.key];
  if (next) {
    event.preventDefault();
    const target = next();
    focused(target);
    target?.focus();
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    opened(data, cell, true);
  }
}

// Leave the one column that is asked for; 0: all of them.
function narrowColumns(only) {
  for (const line of byId("fleet").querySelectorAll("tr")) {
    if ((line.only ?? 0) === only) continue;
    line.only = only;
    for (const cell of line.cells) cell.hidden = only > 0 && cell.cellIndex > 0 && cell.cellIndex !== only;
  }
}

// Hide what the filters leave out, and say how many hosts are left.
function narrow(data) {
  const pattern = namePattern(filters.host);
  const found = new Set();
  for (const row of data.rows) {
    const hosts = matching(data, row, pattern);
    for (const name of hosts) found.add(name);
    if (!row.element) continue;
    row.element.hidden = !hosts.length;
    const some = hosts.length < row.hosts.length;
    row.number.textContent = row.hosts.length === 1 ? "" : some ? `${hosts.length} of ${row.hosts.length}` : `${row.hosts.length}`;
    row.names.textContent = some && hosts.length ? hosts.slice(0, 3).join(", ") + (hosts.length > 3 ? " …" : "") : row.label;
  }
  narrowColumns(data.columns.indexOf(filters.component) + 1);
  for (const square of data.squares) square.classList.toggle("out", !found.has(square.host));
  byId("fleet").classList.toggle("empty", !found.size);
  const all = data.order.length;
  const shown = data.order.filter((name) => found.has(name)).length;
  byId("count").textContent = shown === all ? `All ${counted(all, "host")} are shown.`
    : shown ? `${shown.toLocaleString("en")} of ${counted(all, "host")} are shown.` : "No host fits these filters.";
  if (current && (current.hidden || current.closest("tr").hidden)) {
    focused(byId("fleet").querySelector("tbody tr:not([hidden]) th") ?? byId("fleet").querySelector("thead th"));
  }
}
