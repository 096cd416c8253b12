// What the page was given, unpacked; and elements, into which a value comes as text alone.

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(stream).text());
  data.kinds = data.kinds.map(([name, mark, colour, meaning, isQuiet]) => ({ name, mark, colour, meaning, isQuiet }));
  data.items = data.items.map(([component, kind, what, actual, desired, cost, since, told], at) =>
    ({ component, kind: data.kinds[kind], what, actual, desired, cost, since, told, commands: data.commands[at] }));
  for (const row of data.rows) {
    row.items = row.items.map((at) => data.items[at]);
    row.good = row.good.map((at) => data.items[at]);
    row.kind = data.kinds[row.kind];
    row.cells = row.cells.map((at) => (at < 0 ? null : data.kinds[at]));
  }
  return data;
}

function byId(id) {
  return document.getElementById(id);
}

// An element with attributes and children; a child that is a string becomes text, whatever stands in it.
function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function counted(number, one) {
  return `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;
}

// `text` with `*` for any letters, else as a part of the name; several with commas or blanks between them.
function namePattern(text) {
  const parts = text.split(/[\s,]+/).filter(Boolean);
  if (!parts.length) return null;
  const escaped = parts.map((part) => {
    const words = part.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*+/g, ".*");
    return part.includes("*") ? `^${words}$` : words;
  });
  return new RegExp(escaped.join("|"), "i");
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Not allowed here, as in a page of http: the old way.
    const area = made("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function age(iso) {
  const minutes = Math.round((Date.now() - new Date(iso).getTime()) / 60000);
  const units = [[60 * 24, "day"], [60, "hour"], [1, "minute"]];
  const [size, unit] = units.find(([each]) => minutes >= each * 2) ?? [1, "minute"];
  if (minutes < 0) return "";
  return minutes < 2 ? ", just now" : `, ${counted(Math.floor(minutes / size), unit)} ago`;
}
