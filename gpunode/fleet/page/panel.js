// The panel: what is desired and what is there side by side, why, what to do, and what that costs.

const SHOWN_FIRST = 12;

function value(text, other) {
  if (text === null) return made("span", { class: "nothing" }, "–");
  if (other === null || text === other) return text;
  // Whole words that both sides begin and end with are no difference: long versions and digests are told apart so.
  const [ours, theirs] = [text, other].map((side) => side.match(/\w+|\W/g) ?? []);
  const least = Math.min(ours.length, theirs.length);
  let start = 0;
  while (start < least && ours[start] === theirs[start]) start += 1;
  let end = 0;
  while (end < least - start && ours[ours.length - 1 - end] === theirs[theirs.length - 1 - end]) end += 1;
  if (!start && !end) return text;
  const middle = ours.slice(start, ours.length - end).join("");
  return made("span", {}, ours.slice(0, start).join(""), middle ? made("mark", {}, middle) : null,
    ours.slice(ours.length - end).join(""));
}

function command(text) {
  const button = made("button", { type: "button", class: "copy", "aria-label": `Copy the command: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(text)) ? "Copied" : "Not copied";
    byId("count").textContent = `${button.textContent}: ${text}`;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return made("span", { class: "command" }, made("code", {}, text), button);
}

// Words in which these commands stand between backquotes, and which may be a link. Other backquotes say nothing.
function words(text, commands) {
  if (/^https:\/\/[^\s<>"']+$/.test(text)) {
    return [made("a", { href: text, rel: "noreferrer noopener", target: "_blank" }, text)];
  }
  return commands.reduce((parts, each) => parts.flatMap((part) => typeof part !== "string" ? [part]
    : part.split(`\`${each}\``).flatMap((piece, at) => (at ? [command(each), piece] : [piece]))), [text]);
}

function card(data, item, component) {
  const lines = item.told.map(([label, text]) => [label, words(text, ["remedy", "code"].includes(label) ? item.commands : [])]);
  if (item.since) lines.push(["since", [item.since]]);
  if (item.cost) lines.push(["cost", [data.costs[item.cost] ?? item.cost]]);
  const sides = item.actual === null && item.desired === null ? null
    : made("div", { class: "sides" },
      made("div", {}, made("h4", {}, "desired"), made("div", { class: "side desired" }, value(item.desired, item.actual))),
      made("div", {}, made("h4", {}, "actual"), made("div", { class: "side actual" }, value(item.actual, item.desired))));
  return made("article", { class: "card" },
    made("h3", {}, made("span", { class: `cell ${item.kind.colour}`, "aria-hidden": "true" }, item.kind.mark),
      component === null ? made("span", { class: "of" }, item.component) : " ", made("bdi", {}, item.what),
      made("span", { class: "unseen" }, `, ${item.kind.name}`)),
    sides,
    lines.length ? made("dl", {}, ...lines.flatMap(([label, parts]) => [made("dt", {}, label), made("dd", {}, ...parts)])) : null);
}

function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`;
}

// A run helps where something is told of what it costs.
function healing(data, row, bad) {
  if (!data.heal || !bad.some((item) => item.cost)) return null;
  if (row.scope === "cluster") return made("div", { class: "heal" }, made("h3", {}, "A run on its nodes"), command(data.heal_all));
  const few = row.hosts.length <= 8;
  const limits = few ? row.hosts.map((name) => ` --limit ${quoted(name)}`).join("") : "";
  return made("div", { class: "heal" }, made("h3", {}, few ? "A run on these hosts" : "A run on all hosts that were looked at"), command(few ? data.heal + limits : data.heal_all));
}

function goodList(items, component) {
  if (!items.length) return null;
  const rows = items.map((item) => made("tr", {}, component === null ? made("td", {}, item.component) : null, made("td", {}, item.what), made("td", {}, item.actual ?? "–")));
  const head = made("tr", {}, ...["component", "what", "as desired"].slice(component === null ? 0 : 1).map((name) => made("th", { scope: "col" }, name)));
  return made("details", {}, made("summary", {}, `${counted(items.length, "thing")} as desired`),
    made("table", { class: "good" }, made("thead", {}, head), made("tbody", {}, ...rows)));
}

// Show a row's component, or all of it; `host` is the one that a link names.
function show(data, row, component, host) {
  filters.shown = { host, component };
  toAddress();
  byId("fleet").querySelectorAll("[aria-selected]").forEach((cell) => cell.removeAttribute("aria-selected"));
  row.element?.cells[component === null ? 0 : data.columns.indexOf(component) + 1]?.setAttribute("aria-selected", "true");
  const ours = (item) => component === null || item.component === component;
  const names = row.hosts.length === 1 ? null
    : made("details", { class: "names-all" }, made("summary", {}, (host === row.hosts[0] ? "" : `${host} is one of `) + `${counted(row.hosts.length, "host")} alike`), made("p", {}, row.hosts.join(", ")));
  const bad = row.items.filter(ours);
  const good = row.good.filter(ours);
  const close = made("button", { type: "button", class: "close" }, "Close");
  close.addEventListener("click", () => closed(data, true));
  byId("panel-title").replaceChildren(made("bdi", {}, row.label), component === null ? "" : made("span", { class: "of" }, component));
  byId("panel-body").replaceChildren(...[
    close, names,
    bad.length ? null : made("p", { class: "quiet" }, good.length ? "All is as desired." : "Nothing is told of this."),
    ...bad.map((item) => card(data, item, component)), healing(data, row, bad), goodList(good, component),
  ].filter(Boolean));
  const list = byId("panel-body").querySelector("details:last-of-type");
  if (!bad.length && list) list.open = true;
  byId("panel").classList.add("open");
  byId("panel").scrollTop = 0;
}

function closed(data, goesBack) {
  filters.shown = null;
  toAddress();
  byId("fleet").querySelectorAll("[aria-selected]").forEach((cell) => cell.removeAttribute("aria-selected"));
  byId("panel").classList.remove("open");
  overview(data);
  if (goesBack) current?.focus();
}

// What differs on the most hosts, where nothing is chosen.
function overview(data) {
  const found = new Map();
  for (const row of data.rows) {
    for (const item of row.items) {
      const key = JSON.stringify([row.scope, item.component, item.kind.name, item.what]);
      const entry = found.get(key) ?? { item, row, number: 0 };
      entry.number += row.hosts.length;
      found.set(key, entry);
    }
  }
  const most = [...found.values()].sort((one, other) =>
    data.kinds.indexOf(one.item.kind) - data.kinds.indexOf(other.item.kind) || other.number - one.number);
  const lines = most.slice(0, SHOWN_FIRST).map(({ item, row, number }) => {
    const button = made("button", { type: "button", class: "line" },
      made("span", { class: `cell ${item.kind.colour}`, "aria-hidden": "true" }, item.kind.mark),
      made("span", { class: "of" }, item.component), made("bdi", {}, item.what),
      made("span", { class: "unseen" }, `, ${item.kind.name},`), made("span", { class: "number" }, row.scope === "cluster" ? "cluster" : counted(number, "host")));
    button.addEventListener("click", () => {
      show(data, row, item.component, row.hosts[0]);
      byId("panel-title").focus();
    });
    return made("li", {}, button);
  });
  const more = most.length - lines.length;
  byId("panel-title").replaceChildren("What differs");
  byId("panel-body").replaceChildren(...[
    lines.length ? made("ul", { class: "lines" }, ...lines) : made("p", { class: "quiet" }, "Nothing: all is as desired."),
    more > 0 ? made("p", { class: "quiet" }, `and ${counted(more, "other difference")} in the map`) : null,
  ].filter(Boolean));
}
