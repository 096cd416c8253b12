// Filters: what is asked for, in the form and in the address behind `#`, so that a link shows the same.

const filters = { host: "", component: "", text: "", kinds: new Set(), shown: null };

function fromAddress(data) {
  const asked = new URLSearchParams(location.hash.slice(1));
  filters.host = asked.get("host") ?? "";
  filters.text = asked.get("text") ?? "";
  const component = asked.get("component") ?? "";
  filters.component = data.columns.includes(component) ? component : "";
  const names = new Set(data.kinds.map((kind) => kind.name));
  filters.kinds = new Set(asked.getAll("verdict").filter((name) => names.has(name)));
  filters.shown = asked.has("show") ? { host: asked.get("show"), component: asked.get("of") } : null;
}

function toAddress() {
  const asked = new URLSearchParams();
  for (const name of ["host", "component", "text"]) if (filters[name]) asked.set(name, filters[name]);
  for (const name of filters.kinds) asked.append("verdict", name);
  if (filters.shown) {
    asked.set("show", filters.shown.host);
    if (filters.shown.component) asked.set("of", filters.shown.component);
  }
  const text = asked.toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

function toForm() {
  for (const name of ["host", "component", "text"]) byId(name).value = filters[name];
  for (const box of document.querySelectorAll("#kinds button")) {
    box.setAttribute("aria-pressed", filters.kinds.has(box.dataset.kind) ? "true" : "false");
  }
}

function haystack(item) {
  const told = item.told.map(([, text]) => text);
  return [item.component, item.what, item.actual, item.desired, ...told].filter(Boolean).join("\n").toLowerCase();
}

// The hosts of a row that are asked for; empty where it is not shown.
function matching(data, row, pattern) {
  const at = data.columns.indexOf(filters.component);
  const kind = at < 0 ? row.kind : row.cells[at];
  if (kind === null) return [];
  if (filters.kinds.size && !filters.kinds.has(kind.name)) {
    // What is worth to know is no host's verdict.
    if (at >= 0 || !row.cells.some((cell) => cell && cell.name === "caution" && filters.kinds.has("caution"))) return [];
  }
  if (filters.text) {
    const text = filters.text.toLowerCase();
    row.haystacks ??= row.items.concat(row.good).map((item) => [item.component, haystack(item)]);
    const found = row.haystacks.some(([component, words]) =>
      (!filters.component || component === filters.component) && words.includes(text));
    if (!found) return [];
  }
  return pattern ? row.hosts.filter((name) => pattern.test(name)) : row.hosts;
}

function kindButtons(data) {
  const counts = new Map(data.kinds.map((kind) => [kind.name, 0]));
  for (const row of data.rows) {
    counts.set(row.kind.name, counts.get(row.kind.name) + row.hosts.length);
    if (row.kind.name !== "caution" && row.cells.some((cell) => cell && cell.name === "caution")) {
      counts.set("caution", counts.get("caution") + row.hosts.length);
    }
  }
  return data.kinds.filter((kind) => counts.get(kind.name)).map((kind) =>
    made("button", { type: "button", "aria-pressed": "false", "data-kind": kind.name, title: kind.meaning },
      made("span", { class: `cell ${kind.colour}`, "aria-hidden": "true" }, kind.mark),
      ` ${kind.name} `, made("b", {}, counts.get(kind.name).toLocaleString("en"))));
}

function wireFilters(data, changed, followed) {
  byId("kinds").append(...kindButtons(data));
  byId("component").append(...data.columns.map((name) => made("option", { value: name }, name)));
  byId("kinds").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const name = button.dataset.kind;
    if (!filters.kinds.delete(name)) filters.kinds.add(name);
    changed();
  });
  for (const name of ["host", "component", "text"]) {
    byId(name).addEventListener("input", () => {
      filters[name] = byId(name).value;
      changed();
    });
  }
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => {
    Object.assign(filters, { host: "", component: "", text: "", kinds: new Set() });
    changed();
  });
  byId("link").addEventListener("click", async () => {
    byId("link").textContent = (await copied(location.href)) ? "Copied" : "Not copied";
    setTimeout(() => { byId("link").textContent = "Copy link"; }, 2000);
  });
  window.addEventListener("hashchange", followed);
}
