// Begin: unpack, draw, and do what the address asks for. Where that fails the plain table is shown.

function changedBy(data) {
  toForm();
  toAddress();
  narrow(data);
}

function reopened(data) {
  const asked = filters.shown;
  const row = asked && data.rows.find((each) => each.hosts.includes(asked.host));
  if (row) show(data, row, data.columns.includes(asked.component) ? asked.component : null, asked.host);
  else closed(data, false);
}

function finished(data) {
  narrow(data);
  reopened(data);
  document.documentElement.dataset.ready = "true";
}

async function start() {
  const data = await unpacked(byId("data").textContent);
  fromAddress(data);
  wireFilters(data, () => changedBy(data), () => {
    fromAddress(data);
    changedBy(data);
    reopened(data);
  });
  data.squares = strip(data);
  drawMap(data);
  toForm();
  narrow(data);
  reopened(data);
  const at = byId("at");
  if (at) byId("age").textContent = age(at.getAttribute("datetime"));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && byId("panel").classList.contains("open")) closed(data, true);
  });
}

start().catch((error) => {
  document.documentElement.classList.remove("scripted");
  byId("why-plain").textContent = `The map could not be drawn (${error.message}): this is the plain table.`;
});
